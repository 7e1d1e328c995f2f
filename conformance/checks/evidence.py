"""What a run left behind, and the outcome of a check."""

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor
from torch.ao.quantization.backend_config import BackendConfig
from torch.fx import GraphModule

from conformance.cases.runs import Run
from conformance.engines.protocol import Program
from conformance.engines.trace import Execution
from conformance.goldens.golden import Golden
from conformance.models.build import Subject

from .comparison import Comparison


@dataclass
class Evidence:
    """Everything a run left behind. What a failed stage did not produce is None; `failures` has its error by stage.

    `blank` is the prepared model before calibration. `prepared_without` is prepared with `rest`, the config without the
    claim; `changes` says whether that changes anything. `program` is what the engine made of `lowered`. `exact` gives the
    exact positions of an output on its grid; `unusable` says what keeps the suite from having a golden."""

    run: Run
    subject: Subject | None = None
    expected: list[Tensor] = field(default_factory=list)
    prepared: GraphModule | None = None
    blank: GraphModule | None = None
    prepared_without: GraphModule | None = None
    rest: BackendConfig | None = None
    changes: bool = False
    reference: GraphModule | None = None
    lowered: GraphModule | None = None
    program: Program | None = None
    execution: Execution | None = None
    reference_execution: Execution | None = None
    golden: Golden | None = None
    exact: Callable[[int], Tensor | None] = lambda number: None
    unusable: str = ""
    repetitions: dict[str, list[Tensor]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    comparison: Comparison | None = None
    sqnr_db: float | None = None


@dataclass(frozen=True)
class Outcome:
    result: str
    detail: str = ""


PASS = Outcome("pass")


def skip(reason: str) -> Outcome:
    return Outcome("skip", reason)


def fail(reason: str) -> Outcome:
    return Outcome("fail", reason)

"""Constraints mean what is documented, to the last ulp, and a torch that does not keep them is caught."""

import copy
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.ao.quantization import (
    FakeQuantize,
    FixedQParamsFakeQuantize,
    FixedQParamsObserver,
    MinMaxObserver,
    PlaceholderObserver,
    QConfigMapping,
)
from torch.ao.quantization.backend_config import BackendConfig, DTypeConfig, DTypeWithConstraints
from torch.fx import GraphModule

from conformance.cases.claims import backend
from conformance.cases.constraints import Quantized, Standing, constrained, standing, standings, violations
from conformance.cases.runs import Run, runs
from conformance.checks.judge import Judge
from conformance.engines.registry import engine
from conformance.errors import UsageError
from conformance.models import build, fx
from conformance.models.observers import unpacked
from conformance.properties.constraints import enforcement
from conformance.properties.constraints.strategies import (
    ACTIVATIONS,
    TRAINED,
    Target,
    Trial,
    around,
    constraints,
    trials,
    ulp,
)
from conformance.properties.search import search
from conformance.reports import constraints as constraints_report
from conformance.repro.constraints import told
from conformance.results.constraints import FIELDS, SIDES
from conformance.results.ledger import Entry, load
from conformance.results.rows import Row
from conformance.results.verdicts import Verdict

BOUND = 2.0**-12
SYMMETRIC = DTypeWithConstraints(torch.qint8, -127, 127, BOUND)
FIXED = DTypeWithConstraints(torch.quint8, 0, 255, scale_exact_match=1 / 256, zero_point_exact_match=0)

# What an observer has to have.


def observed(**given: Any) -> MinMaxObserver:
    return MinMaxObserver(**{"dtype": torch.qint8, "quant_min": -127, "quant_max": 127, "eps": BOUND, **given})


@pytest.mark.parametrize("eps", [BOUND, ulp(BOUND, 1.0), 1.0])
def test_a_least_scale_at_the_bound_or_above_satisfies_it(eps: float) -> None:
    assert standing(SYMMETRIC, "scale_min_lower_bound", observed(eps=eps)) == Standing()


@pytest.mark.parametrize("eps", [ulp(BOUND, 0.0), 2.0**-23, 0.0, float("nan")])
def test_a_least_scale_below_the_bound_breaks_it(eps: float) -> None:
    assert "is below 0.000244140625" in standing(SYMMETRIC, "scale_min_lower_bound", observed(eps=eps)).broken


def test_a_double_below_the_bound_that_no_float32_tells_from_it_satisfies_it_where_it_is_one() -> None:
    near = BOUND * (1 - 2.0**-50)
    assert not standing(SYMMETRIC, "scale_min_lower_bound", observed(eps=near)).broken
    assert standing(SYMMETRIC, "scale_min_lower_bound", PlaceholderObserver(torch.qint8, eps=near)).broken


def test_an_observer_of_one_scale_has_that_as_its_least() -> None:
    below = FixedQParamsObserver(ulp(BOUND, 0.0), 0, dtype=torch.qint8)  # type: ignore[no-untyped-call]
    assert standing(SYMMETRIC, "scale_min_lower_bound", below).broken
    at = FixedQParamsObserver(BOUND, 0, dtype=torch.qint8)  # type: ignore[no-untyped-call]
    assert standing(SYMMETRIC, "scale_min_lower_bound", at) == Standing(open="it has no eps")


@pytest.mark.parametrize(("low", "high", "broken"), [
    (-127, 127, set()), (-64, 63, set()), (-128, 127, {"quant_min_lower_bound"}), (-127, 128, {"quant_max_upper_bound"}),
    (-126, 126, set()),
])  # fmt: skip
def test_a_range_lies_within_the_bounds(low: int, high: int, broken: set[str]) -> None:
    assert set(standings(SYMMETRIC, observed(quant_min=low, quant_max=high))) == broken


def test_a_range_that_is_not_told_is_left_open() -> None:
    found = standings(SYMMETRIC, PlaceholderObserver(torch.qint8, eps=BOUND))
    assert {field: one.broken for field, one in found.items()} == {
        "quant_min_lower_bound": "",
        "quant_max_upper_bound": "",
    }


def fixed(scale: float = 1 / 256, zero_point: int = 0) -> Any:
    return FixedQParamsObserver.with_args(scale=scale, zero_point=zero_point)


@pytest.mark.parametrize("made", [fixed()(), FixedQParamsFakeQuantize(observer=fixed())])  # type: ignore[no-untyped-call]
def test_fixed_qparams_that_are_these_satisfy_them(made: Any) -> None:
    assert standings(FIXED, made) == {}


@pytest.mark.parametrize(("made", "broken"), [
    (fixed(scale=ulp(1 / 256, 0.0))(), {"scale_exact_match"}),
    (fixed(scale=ulp(1 / 256, 1.0))(), {"scale_exact_match"}),
    (fixed(zero_point=1)(), {"zero_point_exact_match"}),
    (MinMaxObserver(), {"scale_exact_match", "zero_point_exact_match"}),
    (FakeQuantize(observer=fixed()), {"scale_exact_match", "zero_point_exact_match"}),  # type: ignore[no-untyped-call]
])  # fmt: skip
def test_other_qparams_or_other_observers_break_them(made: Any, broken: set[str]) -> None:
    assert set(standings(FIXED, made)) == broken


def test_a_scale_that_float32_does_not_have_is_the_nearest() -> None:
    tenth = DTypeWithConstraints(torch.quint8, scale_exact_match=0.1)
    assert standing(tenth, "scale_exact_match", fixed(scale=0.1)()) == Standing()


def test_the_greatest_scale_is_not_asked_for_as_documented() -> None:
    greatest = DTypeWithConstraints(torch.qint8, scale_max_upper_bound=1.0)
    assert standing(greatest, "scale_max_upper_bound", observed(eps=2.0)).open


# What a quantized tensor has to have.


def tensor(scale: float, zero_point: float = 0, *codes: int) -> Quantized:
    return Quantized(torch.tensor([scale]).double(), torch.tensor([zero_point]).double(), torch.tensor(codes or (0,)))


@pytest.mark.parametrize(("made", "said"), [
    (tensor(BOUND, 0, -127, 127), []),
    (tensor(ulp(BOUND, 0.0)), ["scale 0.00024414061044808477 is below 0.000244140625"]),
    (tensor(float("nan")), ["scale nan is below 0.000244140625"]),
    (tensor(BOUND, 0, -128), ["has code -128, below quant_min -127"]),
    (tensor(BOUND, 0, 128), ["has code 128, above quant_max 127"]),
])  # fmt: skip
def test_what_a_tensor_breaks_of_a_symmetric_type(made: Quantized, said: list[str]) -> None:
    assert [violation.text for violation in violations(SYMMETRIC, made)] == said


@pytest.mark.parametrize(("made", "said"), [
    (tensor(1 / 256, 0, 0, 255), []),
    (tensor(ulp(1 / 256, 1.0)), ["scale is 0.003906250465661287, not 0.00390625"]),
    (tensor(1 / 256, 1), ["zero point is 1, not 0"]),
])  # fmt: skip
def test_what_a_tensor_breaks_of_fixed_qparams(made: Quantized, said: list[str]) -> None:
    assert [violation.text for violation in violations(FIXED, made)] == said


def test_one_channel_is_enough_to_break_a_bound() -> None:
    scales = torch.tensor([1.0, ulp(BOUND, 0.0)]).double()
    assert [*violations(SYMMETRIC, Quantized(scales, torch.zeros(2), torch.zeros(0)))]


def test_a_greatest_scale_is_held_against_tensors() -> None:
    greatest = DTypeWithConstraints(torch.qint8, scale_max_upper_bound=1.0)
    assert not [*violations(greatest, tensor(1.0))]
    assert [*violations(greatest, tensor(ulp(1.0, 2.0)))]


# What strategies draw.


def drawn(strategy: Any) -> list[Any]:
    found: list[Any] = []

    def holds(one: Any) -> str:
        found.append(one)
        return ""

    assert search(strategy, holds, 2.0) is None
    return found


def target(side: str, *, qat: bool = False, fixed: bool = False) -> Target:
    dtypes = DTypeConfig(FIXED, FIXED) if fixed else DTypeConfig(SYMMETRIC, SYMMETRIC, SYMMETRIC, torch.float)
    return Target(dtypes, side, qat, axis=0)


@pytest.mark.parametrize(("made", "field", "words"), [
    (target("input"), "scale_min_lower_bound", [
        "MinMaxObserver", "HistogramObserver", "symmetric", "FixedQParamsObserver", "eps=0.000244140625)",
        f"eps={ulp(BOUND, 0.0)!r}", f"eps={ulp(BOUND, 1.0)!r}", f"eps={2.0**-23!r}",
    ]),
    (target("input", qat=True), "scale_min_lower_bound", ["FakeQuantize", "FusedMovingAvgObsFakeQuantize"]),
    (target("weight"), "quant_min_lower_bound", [
        "quant_min=-127", "quant_min=-128", "quant_min=-126", "per_tensor_affine", "PerChannelMinMaxObserver",
    ]),
    (target("weight"), "quant_max_upper_bound", ["quant_max=127", "quant_max=128", "quant_max=126"]),
    (target("input", fixed=True), "scale_exact_match", [
        "scale=0.00390625,", f"scale={ulp(1 / 256, 0.0)!r}", f"scale={ulp(1 / 256, 1.0)!r}", "MinMaxObserver",
        "activation=FakeQuantize", "FixedQParamsFakeQuantize",
    ]),
    (target("input", fixed=True), "zero_point_exact_match", ["zero_point=0,", "zero_point=1,", "zero_point=-1,"]),
])  # fmt: skip
def test_qconfigs_of_every_kind_are_drawn_around_a_field(made: Target, field: str, words: list[str]) -> None:
    sources = drawn(around(made, field))
    assert [word for word in words if not any(word in source for source in sources)] == []
    assert len(sources) <= 30, "a small search goes through all of them"


def broken_by(source: str, made: Target) -> set[str]:
    qconfig = eval(source, build.names())
    post_process = qconfig.weight() if made.side == "weight" else qconfig.activation()
    return {field for field, one in standings(made.constraints, post_process).items() if one.broken}


@pytest.mark.parametrize(("made", "field"), [
    (target(side), field) for side in SIDES
    for field in ("quant_min_lower_bound", "quant_max_upper_bound", "scale_min_lower_bound")
])  # fmt: skip
def test_a_drawn_qconfig_breaks_its_own_field_or_none(made: Target, field: str) -> None:
    with fx.quiet():
        found = [broken_by(source, made) for source in drawn(around(made, field))]
    assert {frozenset(one) for one in found} == {frozenset(), frozenset({field})}


def test_trials_satisfy_every_constraint() -> None:
    for made in (target("input"), target("weight"), target("weight", qat=True), target("input", fixed=True)):
        with fx.quiet():
            assert not any(broken_by(trial.qconfig, made) for trial in drawn(trials(made)))


def test_trials_observe_every_kind_of_data_and_train() -> None:
    assert {trial.data for trial in drawn(trials(target("input")))} == {*ACTIVATIONS}
    assert TRAINED in {trial.after for trial in drawn(trials(target("weight", qat=True)))}
    assert TRAINED not in {trial.after for trial in drawn(trials(target("weight")))}


def test_constraints_are_drawn_with_each_field_set_and_not() -> None:
    found = drawn(constraints())
    for field in FIELDS:
        assert {getattr(one, field) is None for one in found} == {True, False}
    one_sided = [one for one in found if (one.quant_min_lower_bound is None) is not (one.quant_max_upper_bound is None)]
    assert one_sided


# A torch that lies.

ADD = "qnnpack/torch.add/static-qint8/ptq/input.scale_min_lower_bound"
LINEAR = "qnnpack/F.linear/static-qint8/ptq/weight.scale_min_lower_bound"
CODES = "qnnpack/F.linear/static-qint8/ptq/weight.quant_min_lower_bound"
SIGMOID = "qnnpack/nn.Sigmoid/static-quint8/ptq/output.zero_point_exact_match"


@cache
def run(name: str) -> Run:
    return next(one for one in runs(backend("qnnpack"), ["qnnpack"]) if one.id == f"{name}/constraints@qnnpack")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    enforcement._benches.clear()
    yield
    enforcement._benches.clear()


def judged(name: str) -> Row:
    return enforcement.row(Judge(), run(name))


@pytest.mark.parametrize("name", [ADD, LINEAR, SIGMOID])
def test_torch_as_it_is_passes_where_it_keeps_to_constraints(name: str) -> None:
    row = judged(name)
    assert (row.verdict, dict(row.checks)) == ("conforms", {"observed": "pass", "constraints": "pass"}), row.detail


Prepare = Callable[[build.Subject, BackendConfig], GraphModule]


def unconstrained(prepare: Prepare) -> Prepare:
    """Use every QConfig."""

    def lie(given: build.Subject, config: BackendConfig) -> GraphModule:
        config = copy.deepcopy(config)
        for entry in config.configs:
            for dtypes in entry.dtype_configs:
                for side in SIDES:
                    constraint = getattr(dtypes, f"{side}_dtype_with_constraints")
                    setattr(dtypes, f"{side}_dtype_with_constraints", DTypeWithConstraints(constraint.dtype))
        return prepare(given, config)

    return lie


def unused(prepare: Prepare) -> Prepare:
    """Use no QConfig."""

    def lie(given: build.Subject, config: BackendConfig) -> GraphModule:
        return prepare(replace(given, mapping=QConfigMapping()), config)

    return lie


def silent(prepare: Prepare) -> Prepare:
    """Ignore without a warning."""

    def lie(given: build.Subject, config: BackendConfig) -> GraphModule:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return prepare(given, config)

    return lie


def alarming(prepare: Prepare) -> Prepare:
    """Say of every QConfig that it is ignored."""

    def lie(given: build.Subject, config: BackendConfig) -> GraphModule:
        warnings.warn("ignoring QConfig", stacklevel=2)
        return prepare(given, config)

    return lie


@pytest.mark.parametrize("name", [ADD, LINEAR, SIGMOID])
@pytest.mark.parametrize(("lie", "said"), [
    (unconstrained, "and it is used without a warning: QConfig("),
    (unused, "satisfies every constraint and is ignored: QConfig("),
    (silent, "and it is ignored without a warning: QConfig("),
    (alarming, "satisfies every constraint and is used, with a warning that it is ignored: QConfig("),
])  # fmt: skip
def test_a_prepare_that_decides_otherwise_is_caught(
    name: str, lie: Callable[[Prepare], Prepare], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fx, "prepare", lie(fx.prepare))
    row = judged(name)
    assert row.checks["observed"] == "fail"
    assert said in row.detail


def test_what_is_wrongly_used_is_followed_into_the_converted_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fx, "prepare", unconstrained(fx.prepare))
    assert "; then input scale 0.00024414061044808477 is below 0.000244140625" in judged(ADD).detail


def changed(name: str, change: Callable[[Tensor], Tensor]) -> Callable[[Any], Any]:
    """Change what the quantizers of a reference model are given."""

    def lie(reference: Any) -> Any:
        def lying(prepared: GraphModule, config: BackendConfig) -> GraphModule:
            made: GraphModule = reference(prepared, config)
            for key, buffer in made.named_buffers():
                if name in key:
                    buffer.copy_(change(buffer))
            return made

        return lying

    return lie


@pytest.mark.parametrize(("name", "lie", "said"), [
    (ADD, changed("_scale_", lambda scale: torch.where(scale == BOUND, torch.tensor(ulp(BOUND, 0.0)), scale)),
     "input scale 0.00024414061044808477 is below 0.000244140625 when "),
    (SIGMOID, changed("_zero_point_", lambda zero_point: zero_point + 1), "output zero point is 1, not 0 when "),
])  # fmt: skip
def test_a_conversion_that_changes_qparams_is_caught(
    name: str, lie: Callable[[Any], Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fx, "reference", lie(fx.reference))
    row = judged(name)
    assert dict(row.checks) == {"observed": "pass", "constraints": "fail"}
    assert f"constraints: {said}" in row.detail


def test_a_packed_weight_beyond_the_range_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    if (reason := engine("qnnpack").unavailable()) is not None:
        pytest.skip(reason)
    one, honest = run(CODES), fx.lower
    made = Target(one.claim.dtypes, "weight")
    question = enforcement.Question(one, enforcement.Bench(one), made, "weight", "quant_min_lower_bound")
    trial = Trial(made.qconfig(made.piece), weights="w")

    def lie(prepared: GraphModule, config: BackendConfig) -> GraphModule:
        lowered = honest(prepared, config)
        for name, value in [*vars(lowered).items()]:
            if isinstance(value, torch.ScriptObject):
                weight = torch._make_per_tensor_quantized_tensor(torch.full((8, 16), -128, dtype=torch.int8), 1.0, 0)
                setattr(lowered, name, torch.ops.quantized.linear_prepack(weight, None))
        return lowered

    with engine("qnnpack").scope():
        assert question.breaks_converted(trial) == ""
        monkeypatch.setattr(fx, "lower", lie)
        question.bench.made.clear()
        assert question.breaks_converted(trial).startswith("packed weight has code -128, below quant_min -127: ")


@pytest.mark.parametrize("name", [LINEAR, "qnnpack/nn.Conv2d/static-qint8/ptq/weight.scale_min_lower_bound"])
def test_packed_weights_are_found_of_functions_and_modules(name: str) -> None:
    if (reason := engine("qnnpack").unavailable()) is not None:
        pytest.skip(reason)
    given = build.subject(run(name))
    with engine("qnnpack").scope(), fx.quiet():
        prepared = fx.prepare(given, run(name).backend.config)
        fx.calibrate(prepared, given)
        assert [t.dtype for t in unpacked(fx.lower(prepared, run(name).backend.config))] == [torch.qint8]


def test_a_property_of_nothing_is_not_said_to_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> GraphModule:
        raise RuntimeError

    monkeypatch.setattr(fx, "reference", fails)
    assert judged(ADD).checks["constraints"] == "skip"
    monkeypatch.setattr(fx, "prepare", fails)
    enforcement._benches.clear()
    assert judged(ADD).checks["observed"] == "skip"


# Rows, the table and the ledger.


def test_a_detail_tells_its_counterexamples() -> None:
    one, other = told("a, and it is used: QConfig(activation=A(), weight=B(x=C())); then weight | b: QConfig(c)")
    assert (one.said, one.qconfig) == ("a, and it is used", "QConfig(activation=A(), weight=B(x=C()))")
    assert (other.said, other.qconfig) == ("b", "QConfig(c)")


def row(pattern: str, variant: str, detail: str = "", **checks: str) -> Row:
    name = f"qnnpack/{pattern}/static-qint8/ptq/{variant}/constraints@qnnpack"
    checks = {"observed": "pass", "constraints": "pass", **checks}
    return Row(
        name,
        "qnnpack",
        pattern,
        "static-qint8",
        "ptq",
        variant,
        "constraints",
        "qnnpack",
        Verdict.DEVIATES,
        checks,
        detail,
    )


ENTRY = Entry("gap", ("*/nn.*/weight.*/constraints@*",), frozenset({"observed"}), "why", "unreported", {}, "here")


def test_the_table_says_for_each_kind_of_operator_what_is_enforced() -> None:
    rows = [
        row("nn.Linear", "weight.quant_min_lower_bound", "observed: it is used; then code -128", observed="fail"),
        row("F.linear", "weight.quant_min_lower_bound"),
        row("F.linear", "weight.scale_max_upper_bound", constraints="skip"),
    ]
    assert [*constraints_report.table(rows, [ENTRY])][2:] == [
        "| `quant_min_lower_bound` | weight | function | qnnpack 1 | enforced | yes | yes |",
        "| `quant_min_lower_bound` | weight | module | qnnpack 1 | enforced | no: `gap` | "
        "if the QConfig satisfies it, else no: `gap` |",
        "| `scale_max_upper_bound` | weight | function | qnnpack 1 | not enforced | no, as documented | no, as documented |",
    ]


def test_a_config_that_is_not_registered_has_lines_of_its_own() -> None:
    other = replace(row("F.linear", "weight.quant_min_lower_bound"), backend="lone")
    assert [*constraints_report.table([row("F.linear", "weight.quant_min_lower_bound"), other], [])][3:] == [
        "| `quant_min_lower_bound` | weight | function (lone) | lone 1 | enforced | yes | yes |"
    ]


def test_a_gap_of_which_the_ledger_knows_nothing_is_said_to_be_unlisted() -> None:
    rows = [row("F.linear", "weight.quant_min_lower_bound", "constraints: weight", constraints="fail")]
    assert [*constraints_report.table(rows, [ENTRY])][2].endswith("| yes | no: unlisted |")


def test_rows_without_constraints_make_no_table() -> None:
    with pytest.raises(UsageError, match=r"run conformance/test_constraints\.py"):
        [*constraints_report.table([], [])]


def test_every_field_that_the_four_configs_set_has_runs() -> None:
    for name in ("qnnpack", "fbgemm", "onednn", "executorch"):
        one = backend(name)
        wanted = {(claim.id, side, field) for claim in one.claims for side, field in constrained(claim.dtypes)}
        found = {
            (r.claim.id, *constraints_report.about(r.variant.name))
            for r in runs(one)
            if r.profile == "constraints" and r.variant
        }
        assert found == wanted


def test_every_entry_of_the_ledger_says_what_torch_does() -> None:
    ids = {entry.id for entry in load() if any("/constraints@" in glob for glob in entry.match)}
    assert "module-weights-unchecked" in ids

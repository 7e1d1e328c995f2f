"""The table of tolerances wider than a tie: operator, engine, width, reason and evidence."""

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass, replace

from conformance.cases.claims import Claim
from conformance.cases.operators import has_weights
from conformance.cases.runs import Run
from conformance.goldens.golden import Golden
from conformance.models.data import GREATEST_BIAS
from conformance.results.profiles import PROFILES
from conformance.results.rows import Row


@dataclass(frozen=True)
class Tolerance:
    """The distance from a golden that is allowed for an operator on an engine (both globs).

    It is in `steps` of the grid of a quantized output, or `relative` to the greatest value of a float output. Steps are
    allowed where the exact position on the grid is within `band` steps of the middle between two codes; with 1/2 everywhere.
    `magnitude` is a lower bound of the greatest value, for outputs whose intermediate values are greater and cancel out:
    float32 rounds relative to those.
    """

    operator: str
    engine: str
    reason: str
    evidence: str
    steps: int = 0
    band: float = 0.5
    relative: float = 0.0
    magnitude: float = 0.0

    @property
    def anywhere(self) -> int:
        """Steps that are allowed at any position."""
        return self.steps if self.band >= 0.5 else 0

    def applies_to(self, operator: str, engine: str) -> bool:
        return fnmatch.fnmatchcase(operator, self.operator) and fnmatch.fnmatchcase(engine, self.engine)


TABLE: tuple[Tolerance, ...] = (
    Tolerance(
        "*",
        "cortex-m",
        "CMSIS-NN requantizes in two steps, each of which rounds: half of an accumulator's step is lost before the code is",
        "arm_nn_requantize in Include/arm_nnsupportfunctions.h of CMSIS-NN, which ExecuTorch's requantize_cmsis repeats",
        1,
        # half of the accumulator's step, s_x s_w / s_y: products of 7-bit codes fill 8 bits, or 7 where the output saturates
        2.0**-6,
    ),
)
"""The first row that applies counts. A row that no run of a complete invocation needs is an error."""

EQUAL = Tolerance("*", "*", "equal, ties aside", "")
TYPICAL_BAND = 2.0**-6
"""Distance from the middle between two codes, in steps, within which an engine may round data of the typical profile to
either code.

The greatest error before the rounding to a code is that of QNNPACK's bias, which is rounded to the accumulator's grid: half
of s_x s_w / s_y steps. With 8 bits for data of a few standard deviations, and K products with weights of variance 1 / K, that
is 2 / (127 sqrt(K)), and twice that before a ReLU, which halves the range: 2**-7 for K = 16, the least K of the suite's
layers.
float32 adds about 2**-16: 2**-24 of the greatest code for each rounding in a function, or for each product of a sum.
"""
FLOAT_BAND = 2.0**-10
"""The part of the band that float32 needs, where that of the bias is computed from the scales."""
NEAR_TIES = Tolerance("*", "*", "data that are not dyadic: float32 rounds before the kernel does", "", 1, TYPICAL_BAND)
RECURRENT = frozenset({"nn.LSTM", "nn.GRU", "nn.LSTMCell", "nn.GRUCell", "nn.RNNCell"})
"""Recurrent layers: their gates are between -1 and 1, even where the output is much smaller."""

ROUNDED = frozenset(
    {
        *(
            "celu",
            "elu",
            "exp2",
            "gelu",
            "glu",
            "logsigmoid",
            "logsoftmax",
            "mish",
            "selu",
            "sigmoid",
            "silu",
            "softmax",
        ),
        "tanh",
    }
)
"""Functions whose float result depends on whether vectorized code or its scalar tail computed it, and for a sum of
exponentials on their order: torch.sigmoid(x)[1:] may differ from torch.sigmoid(x[1:])."""


def rounds(claim: Claim) -> bool:
    """Whether a float output of the pattern may differ by the rounding of float32 where its elements lie elsewhere."""
    names = (name.rpartition(".")[2].lower().replace("_", "") for name in claim.operators)
    return not ROUNDED.isdisjoint(names)


def tolerance(run: Run, table: Iterable[Tolerance] = TABLE, golden: Golden | None = None) -> Tolerance:
    """The tolerance of a run: the table's row for its operator and engine, or the general one of its profile.

    Without its `golden`, a layer with weights of any distribution has the band of the profile `typical`.
    """
    operator = run.claim.root
    general = EQUAL if PROFILES[run.profile].data == "dyadic" else NEAR_TIES
    if golden is not None and PROFILES[run.profile].mapping == "ranges":
        general = replace(general, band=max(general.band, FLOAT_BAND + bias_error(golden)))
    allowed = next((row for row in table if row.applies_to(operator, run.engine)), general)
    if allowed.steps < general.steps:
        allowed = replace(allowed, steps=general.steps, band=general.band)
    if operator in RECURRENT:
        return replace(allowed, magnitude=max(1.0, _greatest_state(run)))
    if has_weights(operator) and run.recipe.kind != "static" and _has_bias(run):
        return replace(allowed, magnitude=GREATEST_BIAS)
    return allowed


def bias_error(golden: Golden) -> float:
    """The greatest error of a bias that is rounded to the grid of the accumulator, in steps of the output: half of
    s_x s_w / s_y. 0 without a weight."""
    scales = {name: scale for name, (scale, _) in golden.qparams.items()}
    if not {"x", "weight", "output"} <= scales.keys():
        return 0.0
    return float(scales["x"].max() * scales["weight"].max() / scales["output"].min()) / 2


def _has_bias(run: Run) -> bool:
    """Whether a layer adds a bias, which may cancel out the product that float32 has rounded."""
    assert run.variant is not None
    return "bias" in run.variant.parameters or (bool(run.variant.init) and "bias=False" not in run.variant.init)


def _greatest_state(run: Run) -> float:
    """The greatest absolute value of a recurrent layer's initial state, to which it adds; 0 if it has none."""
    assert run.variant is not None
    ends = [run.bounds(spec) for name, spec in run.variant.operands.items() if name != "x"]
    return max((max(-low, high) * 2.0**exponent for low, high, exponent in ends), default=0.0)


def unneeded(rows: Iterable[Row], runs: Iterable[Run], table: Iterable[Tolerance] = TABLE) -> list[Tolerance]:
    """Rows of the table that apply to some of the runs, but that none of these runs needed."""
    tolerated = {row.id for row in rows if row.tolerated}
    entries = []
    for entry in table:
        ids = {run.id for run in runs if entry.applies_to(run.claim.root, run.engine)}
        if ids and not ids & tolerated:
            entries.append(entry)
    return entries

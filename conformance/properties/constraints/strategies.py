"""Hypothesis strategies for constraints, observers, fake-quantizes and QConfigs, all as source text, and for data.

What a small search goes through comes first and is finite: values at a bound, one step to either side, and far away, so
that a hundred examples are all there are. A nightly search draws any value besides.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from torch.ao.quantization.backend_config import DTypeConfig, DTypeWithConstraints

from conformance.cases.constraints import of_side
from conformance.cases.recipes import QUANTIZED, RANGES, dtype_name
from conformance.results.constraints import FIELDS

BOUNDED_EXAMPLES = 100
"""What the small search tries at most; a profile with more also draws values of any size."""


def thorough() -> bool:
    return settings().max_examples > BOUNDED_EXAMPLES


def ulp(value: float, towards: float) -> float:
    """The float32 next to `value`."""
    return float(torch.nextafter(torch.tensor(value), torch.tensor(towards)))


@dataclass(frozen=True)
class Piece:
    """An observer, or a fake-quantize of it, with its arguments; what is None is not written.

    `low` and `high` are quant_min and quant_max, `fixed` a scale and a zero point, `fake` the fake-quantize's name. `inside`
    says that a fake-quantize is given the range by its observer, whose own check is the milder one.
    """

    observer: str = "MinMaxObserver"
    dtype: str = "qint8"
    qscheme: str | None = None
    low: int | None = None
    high: int | None = None
    eps: float | None = None
    axis: int | None = None
    fixed: tuple[float, int] | None = None
    averaging: int | None = None
    dynamic: bool = False
    fake: str = ""
    inside: bool = False

    @property
    def arguments(self) -> str:
        scale, zero_point = self.fixed or (None, None)
        given = {
            "scale": scale,
            "zero_point": zero_point,
            "dtype": f"torch.{self.dtype}",
            "qscheme": self.qscheme and f"torch.{self.qscheme}",
            "quant_min": self.low,
            "quant_max": self.high,
            "eps": self.eps,
            "ch_axis": self.axis,
            "averaging_constant": self.averaging,
            "is_dynamic": self.dynamic or None,
        }
        return ", ".join(f"{name}={value}" for name, value in given.items() if value is not None)

    @property
    def source(self) -> str:
        made = f"{self.observer}.with_args({self.arguments})"
        if self.fake and (self.fixed or self.inside):
            return f"{self.fake}.with_args(observer={made})"
        return f"{self.fake}.with_args(observer={self.observer}, {self.arguments})" if self.fake else made


def satisfying(constraints: DTypeWithConstraints, *, dynamic: bool = False, weight: bool = False) -> Piece:
    """The simplest observer that satisfies every constraint on a quantized dtype."""
    assert constraints.dtype in QUANTIZED
    low, high = RANGES[constraints.dtype]
    least, most = constraints.quant_min_lower_bound, constraints.quant_max_upper_bound
    given = Piece(
        dtype=dtype_name(constraints.dtype),
        qscheme="per_tensor_symmetric" if weight else None,
        low=None if least is None and most is None else low if least is None else max(low, int(least)),
        high=None if least is None and most is None else high if most is None else min(high, int(most)),
        eps=constraints.scale_min_lower_bound,
    )
    if dynamic and not weight:
        return replace(given, observer="PlaceholderObserver", qscheme=None, dynamic=True)
    exact, zero_point = constraints.scale_exact_match, constraints.zero_point_exact_match
    if exact is not None or zero_point is not None:
        fixed = (1.0 if exact is None else exact, int(zero_point or 0))
        return replace(given, observer="FixedQParamsObserver", eps=None, fixed=fixed)
    return given


@dataclass(frozen=True)
class Target:
    """One side of a dtype config, as it is quantized in a flow. `axis` is that of weights' scales, None for one in all."""

    dtypes: DTypeConfig
    side: str
    qat: bool = False
    axis: int | None = None

    @property
    def constraints(self) -> DTypeWithConstraints:
        return of_side(self.dtypes, self.side)

    @property
    def piece(self) -> Piece:
        return self._of(self.side, self.constraints)

    @property
    def dynamic(self) -> bool:
        return bool(self.dtypes.is_dynamic) and self.side != "weight"

    @property
    def range(self) -> dict[str, int]:
        """The widest range that satisfies the constraints."""
        assert self.constraints.dtype is not None
        low, high = RANGES[self.constraints.dtype]
        piece = self.piece
        return {"low": low if piece.low is None else piece.low, "high": high if piece.high is None else piece.high}

    def _of(self, side: str, constraints: DTypeWithConstraints) -> Piece:
        piece = satisfying(constraints, dynamic=bool(self.dtypes.is_dynamic), weight=side == "weight")
        if not self.qat:
            return piece
        if piece.fixed:
            return replace(piece, fake="FixedQParamsFakeQuantize")
        if piece.dynamic:
            return replace(piece, observer="MovingAverageMinMaxObserver", averaging=1, fake="FakeQuantize")
        return replace(piece, fake="FakeQuantize", inside=True)

    def qconfig(self, piece: Piece) -> str:
        """The QConfig with `piece` on this side, and what satisfies the constraints on the other."""
        weight, activation = self.dtypes.weight_dtype_with_constraints, self.dtypes.input_dtype_with_constraints
        if weight.dtype not in QUANTIZED:  # a qconfig always has a weight observer
            weight = DTypeWithConstraints(torch.qint8)
        if self.side == "weight":
            return f"QConfig(activation={self._of('input', activation).source}, weight={piece.source})"
        return f"QConfig(activation={piece.source}, weight={self._of('weight', weight).source})"


def styles(target: Target) -> list[Piece]:
    """Observers that satisfy the constraints, each of another class or quantization scheme; the simplest first."""
    plain = target.piece
    if plain.fixed:
        return [plain, replace(plain, fake="" if plain.fake else "FixedQParamsFakeQuantize")]
    if plain.dynamic:
        return [plain]
    average, symmetric = "MovingAverageMinMaxObserver", "per_tensor_symmetric"
    fused = "FusedMovingAvgObsFakeQuantize"
    if target.side != "weight":
        other = replace(plain, observer=average, qscheme=symmetric)
        if target.qat:
            return [plain, other, replace(plain, observer=average, fake=fused, inside=False)]
        return [plain, other, replace(plain, observer="HistogramObserver")]
    found = [plain, replace(plain, qscheme="per_tensor_affine")]
    if target.qat:
        found.append(replace(plain, observer=average, fake=fused, inside=False))
    elif target.axis is not None:
        channels = {"qscheme": "per_channel_symmetric", "axis": target.axis}
        found.append(replace(plain, observer="PerChannelMinMaxObserver", **channels))  # type: ignore[arg-type]
    return found


def _low(bound: float) -> list[int]:
    return [int(bound), int(bound) - 1, int(bound) + 1]


def _high(bound: float) -> list[int]:
    return [int(bound), int(bound) + 1, int(bound) - 1]


def scales(bound: float) -> list[float]:
    """Scales at a bound, one ulp below and above it, and the eps that observers have of themselves."""
    return [bound, ulp(bound, 0.0), ulp(bound, torch.inf), 2.0**-23]


def _integers(bound: float) -> SearchStrategy[int]:
    return st.integers(int(bound) - 16, int(bound) + 16)


ANY_SCALE = st.floats(2.0**-126, 2.0**20, width=32)


def _ranged(target: Target, piece: Piece, **bound: int) -> Piece:
    """The piece with another bound of its range; observers take a range that has both."""
    ranged = replace(piece, **{**target.range, **bound})  # type: ignore[arg-type]
    inside = bool(ranged.fake) and ranged.fake != "FusedMovingAvgObsFakeQuantize"
    return replace(ranged, inside=ranged.inside or inside)


def _with_quant_min(target: Target, piece: Piece, low: int) -> Piece:
    return _ranged(target, piece, low=min(low, 0))


def _with_quant_max(target: Target, piece: Piece, high: int) -> Piece:
    return _ranged(target, piece, high=max(high, 1))


def _with_eps(target: Target, piece: Piece, eps: float) -> Piece:
    """Another least scale; for an observer with one scale in all, that."""
    return replace(piece, fixed=(eps, 0)) if piece.fixed else replace(piece, eps=eps)


def _with_scale(target: Target, piece: Piece, scale: float) -> Piece:
    return replace(piece, fixed=(scale, (piece.fixed or (0.0, 0))[1]))


def _with_zero_point(target: Target, piece: Piece, zero_point: int) -> Piece:
    return replace(piece, fixed=((piece.fixed or (1.0, 0))[0], zero_point))


def _fixed(target: Target) -> list[Piece]:
    """An observer without eps where the constraints speak of the least scale."""
    if target.side == "weight" or target.dynamic or target.piece.fixed:
        return []
    return [_ranged(target, Piece("FixedQParamsObserver", target.piece.dtype, fixed=(1.0, 0)), **target.range)]


def _unfixed(target: Target) -> list[Piece]:
    """What most observers are where the constraints ask for fixed qparams, and a fake-quantize that has them and is no
    FixedQParamsFakeQuantize."""
    ordinary = replace(target.piece, observer="MinMaxObserver", fixed=None, fake="FakeQuantize" if target.qat else "")
    return [ordinary, replace(target.piece, fake="FakeQuantize")]


@dataclass(frozen=True)
class Around:
    """How pieces around a field's bound come about: `put` puts a value in, `near` are those at the bound, `any` all others.

    Of those near the first satisfies the field and the second just does not; pieces but the simplest get these two.
    `besides` are pieces of another kind that get the values at the bound too, `others` such that get none.
    """

    put: Callable[[Target, Piece, Any], Piece]
    near: Callable[[float], list[Any]]
    any: Callable[[float], SearchStrategy[Any]]
    besides: Callable[[Target], list[Piece]] = lambda _: []
    others: Callable[[Target], list[Piece]] = lambda _: []


AROUND = {
    "quant_min_lower_bound": Around(_with_quant_min, _low, _integers),
    "quant_max_upper_bound": Around(_with_quant_max, _high, _integers),
    "scale_min_lower_bound": Around(_with_eps, scales, lambda _: ANY_SCALE, besides=_fixed),
    "scale_max_upper_bound": Around(_with_eps, scales, lambda _: ANY_SCALE),
    "scale_exact_match": Around(_with_scale, scales, lambda _: ANY_SCALE, others=_unfixed),
    "zero_point_exact_match": Around(
        _with_zero_point, lambda bound: [*_high(bound), int(bound) ^ 128], _integers, others=_unfixed
    ),
}


def around(target: Target, field: str) -> SearchStrategy[str]:
    """QConfigs that satisfy every constraint but, some of them, this field; the simplest first."""
    how, bound = AROUND[field], getattr(target.constraints, field)
    first, *rest = [*styles(target), *how.besides(target)]
    values = how.near(bound)
    put = partial(st.builds, how.put, st.just(target))
    drawn: SearchStrategy[Piece] = put(st.just(first), st.sampled_from(values))
    drawn |= put(st.sampled_from(rest or [first]), st.sampled_from(values[:2]))
    if thorough():
        drawn |= put(st.sampled_from([first, *rest]), st.sampled_from(values) | how.any(bound))
    if others := how.others(target):
        drawn |= st.sampled_from(others)
    return drawn.map(target.qconfig)


ACTIVATIONS = (
    "torch.tensor([-1.0, 1.0])",
    "torch.zeros(2)",
    "torch.tensor([-(2.0**-40), 2.0**-40])",
    "torch.full((2,), 2.0**-149)",
    "torch.tensor([-1e38, 1e38])",
    "torch.tensor([-torch.inf, torch.inf])",
    "torch.empty(0)",
)
"""What observers of activations are shown: ordinary, constant, tiny, denormal, huge, infinite, nothing. NaN is not
among it: nothing says what it should do to a scale; nor is a span that float32 does not hold, of which a histogram observer
makes a scale that is NaN."""

WEIGHTS = ("w", "-w.abs()", "w * 0", "w * 2.0**-40", "w * 2.0**-149", "w * 2.0**100")
"""What weights are made of the model's own."""

ROUNDED = "torch.where(w < 0, -0.28125, 0.84375)"
"""Weights whose least lies at a tie of -127..127 in affine codes: an observer divides by the scale and rounds to even, and a
quantizer multiplies with its reciprocal, which is a little more."""

TRAINED = "w * 2"
"""What training makes of weights in the steps that a moving average lags behind."""


@dataclass(frozen=True, order=True)
class Trial:
    """A QConfig with what is observed: source of data shown to activation observers, or of weights in terms of `w`.

    `after` is what training makes of the weights once they were observed; empty if nothing.
    """

    qconfig: str
    data: str = ""
    weights: str = ""
    after: str = ""


def observations(target: Target, qconfig: str) -> list[Trial]:
    """A QConfig with all data that are observed for its side; the simplest first."""
    if target.side == "weight":
        return [Trial(qconfig, weights=weights) for weights in WEIGHTS]
    return [Trial(qconfig, data=data) for data in ACTIVATIONS]


def trials(target: Target) -> SearchStrategy[Trial]:
    """QConfigs that satisfy every constraint, and data: the simplest QConfig with all, others with some; or all with all."""
    pieces = styles(target)
    if not thorough():  # a histogram observer takes as long as twenty others
        pieces = [piece for piece in pieces if piece.observer != "HistogramObserver"]
    first, *others = (target.qconfig(piece) for piece in pieces)
    drawn = observations(target, first)
    for other in others:
        drawn += observations(target, other)[: None if thorough() else 2]
        if target.side == "weight":
            drawn.append(Trial(other, weights=ROUNDED))
        if target.side == "weight" and target.qat:
            drawn.append(Trial(other, weights="w", after=TRAINED))
    return st.sampled_from(drawn)


def constraints(dtype: torch.dtype = torch.qint8) -> SearchStrategy[DTypeWithConstraints]:
    """Constraints on a dtype: every field set or not, alone or with others, a range with one bound or both."""
    low, high = RANGES[dtype]
    values: dict[str, SearchStrategy[Any]] = {
        "quant_min_lower_bound": st.integers(low, 0),
        "quant_max_upper_bound": st.integers(1, high),
        "scale_min_lower_bound": st.sampled_from([2.0**-12, 2.0**-23]),
        "scale_max_upper_bound": st.sampled_from([1.0, 2.0**-4]),
        "scale_exact_match": st.sampled_from([2.0**-8, 2.0**-7]),
        "zero_point_exact_match": st.integers(low, high),
    }
    assert set(values) == set(FIELDS)
    return st.builds(DTypeWithConstraints, st.just(dtype), **{f: st.none() | values[f] for f in FIELDS})

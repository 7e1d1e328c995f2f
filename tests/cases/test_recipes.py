"""Recipes satisfy their dtype configs, and exact data are quantized without error."""

import warnings
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.ao.quantization import MinMaxObserver, PerChannelMinMaxObserver, QConfigMapping
from torch.ao.quantization.backend_config import DTypeConfig, DTypeWithConstraints
from torch.ao.quantization.fx.utils import _qconfig_satisfies_dtype_config_constraints

from conformance.cases.claims import backend
from conformance.cases.ranges import bounds
from conformance.cases.recipes import (
    QUANTIZED,
    RANGES,
    PowerOfTwoObserver,
    PowerOfTwoPerChannelObserver,
    Recipe,
    dtype_config_name,
    recipe,
    typical_recipe,
)
from conformance.cases.runs import Run, runs
from conformance.configs import dtypes
from conformance.configs.registry import BACKENDS
from conformance.models.build import names
from conformance.models.data import grid
from conformance.oracle.arithmetic import extremes, power_of_two_qparams
from conformance.oracle.scheme import Grid
from conformance.results.profiles import profile_names

steadily = settings(max_examples=80, deadline=None, derandomize=True, database=None)
FLOATS = st.floats(-1e4, 1e4, width=32)


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (dtypes.STATIC_QUINT8, "static-quint8"),
        (dtypes.STATIC_QUINT8_WEIGHTED, "static-quint8"),
        (dtypes.STATIC_QUINT8_FLOAT_WEIGHT, "static-quint8"),
        (dtypes.STATIC_QINT8_SYMMETRIC, "static-qint8"),
        (dtypes.DYNAMIC_QUINT8, "dynamic-quint8"),
        (dtypes.DYNAMIC_QINT8_SYMMETRIC, "dynamic-qint8"),
        (dtypes.DYNAMIC_FLOAT16, "dynamic-float16"),
        (dtypes.WEIGHT_ONLY_QUINT8, "weight-quint8"),
        (dtypes.WEIGHT_ONLY_QUINT4X2, "weight-quint4x2"),
        (dtypes.WEIGHT_ONLY_QINT8, "weight-qint8"),
        (DTypeConfig(input_dtype=torch.float16, output_dtype=torch.float16), "static-float16"),
    ],
)
def test_a_dtype_config_is_named_by_its_kind_and_deciding_dtype(config: DTypeConfig, name: str) -> None:
    assert dtype_config_name(config) == name


OBSERVERS: dict[str, dict[str, Any]] = {
    "quint8": {"dtype": torch.quint8, "qscheme": torch.per_tensor_affine, "quant_min": 0, "quant_max": 255},
    "quint8 reduced": {"dtype": torch.quint8, "qscheme": torch.per_tensor_affine, "quant_min": 0, "quant_max": 127},
    "qint8": {"dtype": torch.qint8, "qscheme": torch.per_tensor_affine, "quant_min": -128, "quant_max": 127},
    "qint8 symmetric": {
        "dtype": torch.qint8,
        "qscheme": torch.per_tensor_symmetric,
        "quant_min": -127,
        "quant_max": 127,
    },
}


def qparams(observer: MinMaxObserver | PerChannelMinMaxObserver, data: Tensor) -> tuple[Tensor, Tensor]:
    observer(data)
    scale, zero_point = observer.calculate_qparams()
    return scale, zero_point


def power_of_two(scale: Tensor) -> bool:
    return bool((torch.frexp(scale).mantissa == 0.5).all())


@steadily
@given(st.sampled_from(sorted(OBSERVERS)), st.lists(FLOATS, min_size=1, max_size=6))
def test_a_scale_is_the_next_power_of_two_and_a_zero_point_is_a_code(kind: str, data: list[float]) -> None:
    options, values = OBSERVERS[kind], torch.tensor(data)
    scale, zero_point = qparams(PowerOfTwoObserver(**options), values)
    plain, _ = qparams(MinMaxObserver(**options), values)
    assert power_of_two(scale)
    assert bool((plain <= scale).all())
    assert bool((scale < 2 * plain).all())
    assert options["quant_min"] <= int(zero_point) <= options["quant_max"]


@steadily
@given(st.sampled_from(sorted(OBSERVERS)), st.lists(FLOATS, min_size=1, max_size=6))
def test_observed_data_are_represented_to_within_a_step(kind: str, data: list[float]) -> None:
    options, values = OBSERVERS[kind], torch.tensor(data)
    scale, zero_point = qparams(PowerOfTwoObserver(**options), values)
    codes = torch.round(values / scale + zero_point).clamp(options["quant_min"], options["quant_max"])
    assert bool((((codes - zero_point) * scale - values).abs() <= scale).all())


@pytest.mark.parametrize("data", ["full", "positive", "negative", "tiny", "huge"])
@pytest.mark.parametrize("kind", ["quint8", "quint8 reduced", "qint8"])
def test_data_on_the_grid_are_reproduced_exactly_and_use_every_code(kind: str, data: str) -> None:
    options = OBSERVERS[kind]
    low, high, exponent = bounds(data, options["quant_max"] - options["quant_min"])
    values = grid("key", (64,), low, high, exponent)
    scale, zero_point = qparams(PowerOfTwoObserver(**options), values)
    assert scale.item() == 2.0**exponent
    quantized = torch.quantize_per_tensor(values, scale.item(), int(zero_point), options["dtype"])
    assert torch.equal(quantized.dequantize(), values)
    codes = quantized.int_repr()
    assert (int(codes.min()), int(codes.max())) == (options["quant_min"], options["quant_max"])


@pytest.mark.parametrize("kind", ["quint8", "quint8 reduced", "qint8"])
def test_symmetric_data_on_the_grid_are_reproduced_exactly_around_the_middle_code(kind: str) -> None:
    options = {**OBSERVERS[kind], "qscheme": torch.per_tensor_symmetric}
    low, high, exponent = bounds("symmetric", options["quant_max"] - options["quant_min"])
    values = grid("key", (64,), low, high, exponent)
    scale, zero_point = qparams(PowerOfTwoObserver(**options), values)
    middle = 0 if kind == "qint8" else (options["quant_min"] + options["quant_max"]) // 2
    assert (scale.item(), int(zero_point)) == (2.0**exponent, middle)
    assert int(qparams(MinMaxObserver(**options), values)[1]) == middle
    quantized = torch.quantize_per_tensor(values, scale.item(), int(zero_point), options["dtype"])
    assert torch.equal(quantized.dequantize(), values)
    activations = Grid(kind.split()[0], options["quant_min"], options["quant_max"], "symmetric")
    exact = power_of_two_qparams(*extremes(values, activations), activations)
    assert (exact.scale.item(), int(exact.zero_point)) == (scale.item(), middle)


@pytest.mark.parametrize("qat", [False, True])
def test_activations_of_symmetric_variants_are_symmetric(qat: bool) -> None:
    for symmetric, qscheme in ((True, torch.per_tensor_symmetric), (False, torch.per_tensor_affine)):
        exact = recipe(dtypes.STATIC_QUINT8_WEIGHTED, engine="fbgemm", qat=qat, per_channel=False, symmetric=symmetric)
        observer = observer_of(evaluated(exact).activation)
        assert (observer.qscheme, observer.quant_max) == (qscheme, 127)
        assert exact.scheme.activation is not None
        assert exact.scheme.activation.zero_point == ("symmetric" if symmetric else "affine")


@pytest.mark.parametrize(("low", "high"), [(-128, 127), (-127, 127)])
def test_symmetric_weights_on_the_grid_are_reproduced_exactly(low: int, high: int) -> None:
    options = {"dtype": torch.qint8, "quant_min": low, "quant_max": high}
    weight = grid("key", (6, 40), -127, 127, -7)
    weight[:, 0], weight[:, -1] = -127 * 2.0**-7, 127 * 2.0**-7
    scale, zero_point = qparams(PowerOfTwoObserver(**options, qscheme=torch.per_tensor_symmetric), weight)
    assert (scale.item(), zero_point.item()) == (2.0**-7, 0)
    observer = PowerOfTwoPerChannelObserver(**options, qscheme=torch.per_channel_symmetric, ch_axis=0)
    scales, zero_points = qparams(observer, weight)
    assert scales.tolist() == [2.0**-7] * 6
    assert zero_points.tolist() == [0] * 6
    quantized = torch.quantize_per_channel(weight, scales, zero_points, 0, torch.qint8)
    assert torch.equal(quantized.dequantize(), weight)


def test_each_channel_has_its_own_scale() -> None:
    options = {"dtype": torch.qint8, "qscheme": torch.per_channel_symmetric, "quant_min": -127, "quant_max": 127}
    weight = torch.tensor([[-127.0, 127.0], [-1.0, 0.5], [0.0, 3.0]])
    scales, zero_points = qparams(PowerOfTwoPerChannelObserver(**options, ch_axis=0), weight)
    assert scales.tolist() == [1.0, 2.0**-6, 2.0**-5]
    assert zero_points.tolist() == [0, 0, 0]


def test_float_zero_points_are_fitted_to_the_rounded_scales() -> None:
    options = {
        "dtype": torch.quint8,
        "qscheme": torch.per_channel_affine_float_qparams,
        "quant_min": 0,
        "quant_max": 255,
    }
    table = torch.tensor([[-1.0, 1.0], [3.0, 4.0]])
    scales, zero_points = qparams(PowerOfTwoPerChannelObserver(**options, ch_axis=0), table)
    assert scales.tolist() == [2.0**-6, 2.0**-7]
    assert zero_points.tolist() == [64.0, -384.0]
    quantized = torch.quantize_per_channel(table, scales, zero_points, 0, torch.quint8)
    assert torch.equal(quantized.dequantize(), table)


@pytest.mark.parametrize("kind", ["quint8", "quint8 reduced", "qint8 symmetric"])
@pytest.mark.parametrize("empty", [True, False])
def test_an_observer_without_data_has_the_qparams_of_torchs_observer(kind: str, empty: bool) -> None:
    ours, plain = PowerOfTwoObserver(**OBSERVERS[kind]), MinMaxObserver(**OBSERVERS[kind])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if empty:
            ours(torch.empty(0, 3))
            plain(torch.empty(0, 3))
        assert ours.calculate_qparams() == plain.calculate_qparams() == (torch.tensor([1.0]), torch.tensor([0]))


def test_a_per_channel_observer_without_data_has_the_qparams_of_torchs_observer() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert PowerOfTwoPerChannelObserver().calculate_qparams() == (torch.tensor([1.0]), torch.tensor([0]))


def distinct_recipes(name: str) -> list[Run]:
    """A run for every different pair of dtype config and recipe of a backend."""
    observers = {
        (run.claim.entry.pattern, run.claim.dtype_config, run.flow, run.recipe, run.profile): run
        for run in runs(backend(name))
        if run.profile in profile_names("case")
    }
    return list(observers.values())


def evaluated(text: Recipe) -> Any:
    return eval(text.qconfig, names())


def observer_of(constructor: Any) -> Any:
    post_process = constructor()
    return getattr(post_process, "activation_post_process", post_process)


def within(observer: Any, constrained: DTypeWithConstraints) -> bool:
    """Whether an observer keeps to constraints, from their documentation and not from torch's own test for it."""
    low, high = constrained.quant_min_lower_bound, constrained.quant_max_upper_bound
    floor, scale, zero_point = (
        constrained.scale_min_lower_bound,
        constrained.scale_exact_match,
        constrained.zero_point_exact_match,
    )
    assert constrained.dtype is not None
    widest = RANGES.get(constrained.dtype)
    return (
        observer.dtype == constrained.dtype
        and (widest is None or widest[0] <= observer.quant_min < observer.quant_max <= widest[1])
        and (low is None or observer.quant_min >= low)
        and (high is None or observer.quant_max <= high)
        and (floor is None or float(observer.eps) >= floor)
        and (scale is None or (float(observer.scale), int(observer.zero_point)) == (scale, zero_point))
    )


@pytest.mark.parametrize("name", BACKENDS)
def test_every_recipe_satisfies_the_constraints_of_its_dtype_config(name: str) -> None:
    exact_runs = [run for run in distinct_recipes(name) if run.profile == "exact"]
    assert len(exact_runs) >= len(backend(name).claims)
    for run in exact_runs:
        qconfig, config = evaluated(run.recipe), run.claim.dtypes
        assert _qconfig_satisfies_dtype_config_constraints(qconfig, config.input_dtype_with_constraints), run.id
        assert _qconfig_satisfies_dtype_config_constraints(qconfig, config.output_dtype_with_constraints), run.id
        assert _qconfig_satisfies_dtype_config_constraints(qconfig, config.weight_dtype_with_constraints, False), run.id
        activation, weight = observer_of(qconfig.activation), observer_of(qconfig.weight)
        assert within(activation, config.input_dtype_with_constraints), run.id
        if not config.is_dynamic and run.recipe.kind == "static":
            assert within(activation, config.output_dtype_with_constraints), run.id
        if config.weight_dtype is not None:
            assert within(weight, config.weight_dtype_with_constraints), run.id
        assert bool(getattr(activation, "is_dynamic", False)) is bool(config.is_dynamic), run.id


@pytest.mark.parametrize("name", BACKENDS)
def test_every_mapping_evaluates_and_gives_the_pattern_its_qconfig(name: str) -> None:
    for run in (run for run in distinct_recipes(name) if run.profile == "exact"):
        scope = names()
        scope["qconfig"] = qconfig = eval(run.recipe.qconfig, scope)
        mapping = eval(run.recipe.mapping, scope)
        if run.variant is not None and run.variant.prelude:
            (of_type,) = mapping.object_type_qconfigs.values()
            assert of_type is qconfig, run.id
            assert mapping.global_qconfig is not qconfig, run.id
        else:
            assert mapping.global_qconfig is qconfig, run.id


@pytest.mark.parametrize("name", BACKENDS)
def test_every_typical_recipe_is_torchs_own_and_satisfies_the_same_constraints_as_the_exact_one(name: str) -> None:
    typical_runs = [run for run in distinct_recipes(name) if run.profile == "typical"]
    assert typical_runs
    for run in typical_runs:
        scope = names()
        scope["qconfig"] = qconfig = eval(run.recipe.qconfig, scope)
        mapping = eval(run.recipe.mapping, scope)
        activation = observer_of(qconfig.activation)
        assert activation.dtype == run.claim.dtypes.input_dtype or not run.claim.dtypes.input_dtype, run.id
        if run.claim.dtypes.weight_dtype in QUANTIZED:
            assert observer_of(qconfig.weight).dtype == run.claim.dtypes.weight_dtype, run.id
        if run.claim.dtype_config == "static-quint8":
            engine = run.engine if run.engine != "executorch" else "qnnpack"
            assert f'qconfig_mapping("{engine}")' in run.recipe.mapping, run.id
            assert mapping.to_dict() != QConfigMapping().set_global(qconfig).to_dict(), run.id
        else:
            assert mapping.global_qconfig is qconfig, run.id


@pytest.mark.parametrize(
    ("config", "torchs"),
    [
        (DTypeConfig(torch.quint8, torch.quint8, torch.qint8, torch.float), True),
        (DTypeConfig(torch.quint8, torch.quint8), True),
        (DTypeConfig(torch.quint8, torch.quint8, torch.quint8, torch.float), False),
        (DTypeConfig(torch.float, torch.float, torch.quint8, torch.float), False),
    ],
)
def test_a_typical_recipe_is_the_exact_one_where_torchs_quantizes_weights_otherwise(
    config: DTypeConfig, torchs: bool
) -> None:
    exact = recipe(config, engine="x86", qat=False, per_channel=False, by_row=False)
    assert (typical_recipe(config, exact, engine="x86") != exact) is torchs


@pytest.mark.parametrize("name", BACKENDS)
def test_qat_recipes_have_fake_quantizes_and_the_others_have_observers(name: str) -> None:
    for run in distinct_recipes(name):
        activation = evaluated(run.recipe).activation()
        if run.claim.dtypes.input_dtype in QUANTIZED:
            assert hasattr(activation, "activation_post_process") is (run.flow == "qat"), run.id


@pytest.mark.parametrize("engine", ["fbgemm", "x86", "onednn", "qnnpack"])
@pytest.mark.parametrize("qat", [False, True])
def test_activations_have_seven_bits_for_kernels_that_accumulate_in_sixteen(engine: str, qat: bool) -> None:
    exact = recipe(dtypes.STATIC_QUINT8_WEIGHTED, engine=engine, qat=qat, per_channel=False)
    highest = 127 if engine in ("fbgemm", "x86") else 255
    assert observer_of(evaluated(exact).activation).quant_max == highest
    assert exact.steps == highest


def test_a_fixed_grid_is_whole_on_every_engine() -> None:
    fixed = DTypeWithConstraints(torch.quint8, 0, 255, scale_exact_match=2**-8, zero_point_exact_match=0)
    config = DTypeConfig(input_dtype=fixed, output_dtype=fixed)
    for engine in ("fbgemm", "qnnpack"):
        exact = recipe(config, engine=engine, qat=False, per_channel=False)
        observer = observer_of(evaluated(exact).activation)
        assert (float(observer.scale), int(observer.zero_point)) == (2**-8, 0)
        assert (observer.quant_max, exact.steps) == (255, 255)


@pytest.mark.parametrize("per_channel", [False, True])
def test_weights_of_per_channel_variants_are_per_channel(per_channel: bool) -> None:
    exact = recipe(dtypes.STATIC_QUINT8_WEIGHTED, engine="fbgemm", qat=False, per_channel=per_channel)
    weight = observer_of(evaluated(exact).weight)
    assert weight.qscheme is (torch.per_channel_symmetric if per_channel else torch.per_tensor_symmetric)
    assert isinstance(weight, PowerOfTwoPerChannelObserver if per_channel else PowerOfTwoObserver)

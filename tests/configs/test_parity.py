"""Our backend configs equal torch's, and drift() reports every kind of difference."""

import copy
import dataclasses
import math
import operator
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.ao.nn.intrinsic as nni
import torch.ao.nn.qat as nnqat
import torch.ao.nn.quantized.reference as nnqr
from torch import nn
from torch.ao.quantization import backend_config as torchs
from torch.ao.quantization.backend_config import (
    BackendConfig,
    BackendPatternConfig,
    DTypeConfig,
    DTypeWithConstraints,
    ObservationType,
)
from torch.ao.quantization.fuser_method_mappings import fuse_conv_bn

from conformance.configs.families import in_sequence
from conformance.configs.names import config_pattern, pattern_name
from conformance.configs.onednn import ConvAdd
from conformance.configs.parity import drift
from conformance.configs.registry import BACKENDS
from tests.faults.configs import Change, changed, entry_of, with_entries

SIZES = {"qnnpack": (190, 404), "fbgemm": (192, 225), "onednn": (221, 244), "executorch": (84, 172)}

fuse: Callable[..., nn.Module] = fuse_conv_bn


def changed_dtype(pattern: str, place: int, part: str, **fields: Any) -> Change:
    def change(config: BackendConfig) -> BackendConfig:
        dtype_config = entry_of(config, pattern).dtype_configs[place]
        for field, value in fields.items():
            setattr(getattr(dtype_config, f"{part}_with_constraints"), field, value)
        return config

    return change


def without_entry(config: BackendConfig) -> BackendConfig:
    return with_entries(config, [entry for entry in config.configs if entry.pattern is not nn.ReLU6])


def with_another_entry(config: BackendConfig) -> BackendConfig:
    return with_entries(config, [*config.configs, BackendPatternConfig(nn.SiLU)])


def with_first_two_swapped(config: BackendConfig) -> BackendConfig:
    first, second, *rest = config.configs
    return with_entries(config, [second, first, *rest])


def without_first_dtype_config(config: BackendConfig) -> BackendConfig:
    del entry_of(config, "nn.ELU").dtype_configs[0]
    return config


def with_dtype_configs_reversed(config: BackendConfig) -> BackendConfig:
    entry_of(config, "nn.Embedding").dtype_configs.reverse()
    return config


def with_getters_swapped(config: BackendConfig) -> BackendConfig:
    entry = entry_of(config, "operator.add(nn.Conv2d,*)")
    entry._root_node_getter, entry._extra_inputs_getter = entry._extra_inputs_getter, entry._root_node_getter
    return config


def in_the_nested_format(config: BackendConfig) -> BackendConfig:
    return changed("nn.Conv2d+nn.ReLU", pattern=None, _pattern_complex_format=(nn.ReLU, nn.Conv2d))(config)


def forgets_the_batch_norm(is_qat: bool, conv: nn.Module, batch_norm: nn.Module, relu: nn.Module) -> nn.Module:
    return in_sequence(nni.ConvReLU2d)(is_qat, conv, relu)


def forgets_qat(is_qat: bool, conv: nn.Module, batch_norm: nn.Module) -> nn.Module:
    return fuse(False, conv, batch_norm)


def forgets_the_mode(is_qat: bool, conv: nn.Module, relu: nn.Module) -> nn.Module:
    return in_sequence(nni.ConvReLU2d)(is_qat, conv.eval(), relu)


def forgets_the_slope(is_qat: bool, linear: nn.Module, leaky_relu: nn.Module) -> nn.Module:
    return in_sequence(nni.LinearLeakyReLU)(is_qat, linear, nn.LeakyReLU().train(leaky_relu.training))


def forgets_which_add(is_qat: bool, add: Any, conv: nn.Module, addend: object) -> nn.Module:
    return ConvAdd(relu=False, conv_on_right=False, batch_norm=False, add=add).fuse(is_qat, operator.add, conv, addend)


def takes_another_activation(is_qat: bool, relu: nn.Module, added: Any) -> nn.Module:
    form = ConvAdd(relu=True, conv_on_right=False, batch_norm=False, add=torch.add)
    return form.fuse(is_qat, nn.SELU().train(relu.training), added)


def forgets_to_compare_modes(is_qat: bool, conv: nn.Module, batch_norm: nn.Module) -> nn.Module:
    return fuse(is_qat, conv.train(batch_norm.training), batch_norm)


def is_an_ulp_off(is_qat: bool, conv: nn.Conv2d, relu: nn.Module) -> nn.Module:
    with torch.no_grad():
        conv.weight[5, 3, 2, 2].nextafter_(torch.tensor(0.0))
    return in_sequence(nni.ConvReLU2d)(is_qat, conv, relu)


def is_in_double_precision(is_qat: bool, conv: nn.Module, relu: nn.Module) -> nn.Module:
    return in_sequence(nni.ConvReLU2d)(is_qat, conv.double(), relu)


def raises_another_error(is_qat: bool, conv: nn.Module, batch_norm: nn.Module) -> nn.Module:
    try:
        return fuse(is_qat, conv, batch_norm)
    except AssertionError as error:
        raise ValueError from error


CHANGES: dict[str, tuple[str, Change, list[str]]] = {
    "a name": ("fbgemm", lambda config: config.set_name("x86"), ["name: ours 'x86', torch's 'fbgemm'"]),
    "an entry dropped": ("fbgemm", without_entry, ["only in torch: nn.ReLU6"]),
    "an entry added": ("fbgemm", with_another_entry, ["only in ours: nn.SiLU"]),
    "the order": ("fbgemm", with_first_two_swapped, ["order: entry 0: ours nnqat.Conv1d, torch's nn.Conv1d"]),
    "the format": (
        "fbgemm",
        in_the_nested_format,
        [
            "nn.Conv2d+nn.ReLU: pattern: ours None, torch's nn.Conv2d+nn.ReLU",
            "nn.Conv2d+nn.ReLU: pattern_complex_format: ours nn.ReLU+nn.Conv2d, torch's None",
        ],
    ),
    "the observation type": (
        "fbgemm",
        changed("nn.Conv2d", observation_type=ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT),
        [
            "nn.Conv2d: observation_type: ours OUTPUT_SHARE_OBSERVER_WITH_INPUT, "
            "torch's OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT"
        ],
    ),
    "the observation type of a scalar operand": (
        "fbgemm",
        changed("torch.mul", _num_tensor_args_to_observation_type={}),
        [
            "torch.mul: num_tensor_args_to_observation_type: ours {}, "
            "torch's {0: OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT, 1: OUTPUT_SHARE_OBSERVER_WITH_INPUT, "
            "2: OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT}"
        ],
    ),
    "an argument index": (
        "fbgemm",
        changed("F.conv2d", _input_type_to_index={"weight": 1, "bias": 3}),
        ["F.conv2d: input_type_to_index: ours {weight: 1, bias: 3}, torch's {weight: 1, bias: 2}"],
    ),
    "the root module": (
        "fbgemm",
        changed("nniqat.ConvReLU2d", root_module=nn.Conv3d),
        ["nniqat.ConvReLU2d: root_module: ours nn.Conv3d, torch's nn.Conv2d"],
    ),
    "the fused module": (
        "fbgemm",
        changed("nn.Conv2d+nn.ReLU", fused_module=nni.ConvReLU3d),
        ["nn.Conv2d+nn.ReLU: fused_module: ours nni.ConvReLU3d, torch's nni.ConvReLU2d"],
    ),
    "the QAT module": (
        "fbgemm",
        changed("nn.Conv2d", qat_module=nnqat.Conv3d),
        ["nn.Conv2d: qat_module: ours nnqat.Conv3d, torch's nnqat.Conv2d"],
    ),
    "the reference module": (
        "fbgemm",
        changed("nn.LSTM", reference_quantized_module=nnqr.GRU),
        [
            "nn.LSTM: reference_quantized_module: ours torch.ao.nn.quantized.reference.modules.rnn.GRU, "
            "torch's torch.ao.nn.quantized.reference.modules.rnn.LSTM"
        ],
    ),
    "a dtype config dropped": (
        "qnnpack",
        without_first_dtype_config,
        [
            "nn.ELU: dtype_configs: ours [(input_dtype.dtype torch.quint8, output_dtype.dtype torch.quint8)], "
            "torch's [(input_dtype.dtype torch.qint8, input_dtype.scale_min_lower_bound 0.000244140625, "
            "output_dtype.dtype torch.qint8, output_dtype.scale_min_lower_bound 0.000244140625), "
            "(input_dtype.dtype torch.quint8, output_dtype.dtype torch.quint8)]"
        ],
    ),
    "dtype configs in another order": (
        "qnnpack",
        with_dtype_configs_reversed,
        [
            "nn.Embedding: dtype_configs[0].weight_dtype.dtype: ours torch.quint4x2, torch's torch.quint8",
            "nn.Embedding: dtype_configs[1].weight_dtype.dtype: ours torch.quint8, torch's torch.quint4x2",
        ],
    ),
    "a bound one ulp off": (
        "qnnpack",
        changed_dtype("nn.Conv2d", 0, "weight_dtype", scale_min_lower_bound=math.nextafter(2**-12, 1)),
        [
            "nn.Conv2d: dtype_configs[0].weight_dtype.scale_min_lower_bound: "
            "ours 0.00024414062500000005, torch's 0.000244140625"
        ],
    ),
    "a fuser method missing": (
        "fbgemm",
        changed("nn.Conv2d+nn.BatchNorm2d", fuser_method=None),
        [
            "nn.Conv2d+nn.BatchNorm2d: fuser_method: ours None, "
            "torch's torch.ao.quantization.fuser_method_mappings.fuse_conv_bn"
        ],
    ),
    "a fuser method that forgets the batch norm": (
        "fbgemm",
        changed("nn.Conv2d+nn.BatchNorm2d+nn.ReLU", fuser_method=forgets_the_batch_norm),
        [
            "nn.Conv2d+nn.BatchNorm2d+nn.ReLU: fuser_method (is_qat=False, eval) tensor 0.weight at (5, 3, 2, 2): "
            "ours 27.875, torch's "
        ],
    ),
    "a fuser method that forgets QAT": (
        "fbgemm",
        changed("nn.Conv2d+nn.BatchNorm2d", fuser_method=forgets_qat),
        [
            "nn.Conv2d+nn.BatchNorm2d: fuser_method (is_qat=True, eval): ours nn.Conv2d, torch's nni.ConvBn2d",
        ],
    ),
    "a fuser method that forgets the mode": (
        "fbgemm",
        changed("nn.Conv2d+nn.ReLU", fuser_method=forgets_the_mode),
        ["nn.Conv2d+nn.ReLU: fuser_method (is_qat=False, train) 0.training: ours False, torch's True"],
    ),
    "a fuser method that takes modules of mixed modes": (
        "fbgemm",
        changed("nn.Conv2d+nn.BatchNorm2d", fuser_method=forgets_to_compare_modes),
        [
            "nn.Conv2d+nn.BatchNorm2d: fuser_method (is_qat=False, mixed): "
            "ours nn.Conv2d, torch's builtins.AssertionError"
        ],
    ),
    "a fuser method of another activation": (
        "onednn",
        changed("nn.ReLU(torch.add(nn.Conv2d,*))", fuser_method=takes_another_activation),
        ["nn.ReLU(torch.add(nn.Conv2d,*)): fuser_method (is_qat=False, eval) type relu: ours nn.SELU, torch's nn.ReLU"],
    ),
    "a fuser method one ulp off": (
        "fbgemm",
        changed("nn.Conv2d+nn.ReLU", fuser_method=is_an_ulp_off),
        [
            "nn.Conv2d+nn.ReLU: fuser_method (is_qat=False, eval) tensor 0.weight at (5, 3, 2, 2): "
            "ours 27.874998092651367, torch's 27.875"
        ],
    ),
    "a fuser method in another precision": (
        "fbgemm",
        changed("nn.Conv2d+nn.ReLU", fuser_method=is_in_double_precision),
        [
            "nn.Conv2d+nn.ReLU: fuser_method (is_qat=False, eval) tensor 0.weight: "
            "ours torch.float64 of shape (6, 4, 3, 3), torch's torch.float32 of shape (6, 4, 3, 3)"
        ],
    ),
    "a fuser method that forgets a setting": (
        "onednn",
        changed("nn.Linear+nn.LeakyReLU", fuser_method=forgets_the_slope),
        ["nn.Linear+nn.LeakyReLU: fuser_method (is_qat=False, eval) 1.negative_slope: ours 0.01, torch's 0.25"],
    ),
    "a fuser method that forgets what it adds with": (
        "onednn",
        changed("torch.add(nn.Conv2d,*)", fuser_method=forgets_which_add),
        [
            "torch.add(nn.Conv2d,*): fuser_method (is_qat=False, eval) .add: ours operator.add, torch's torch.add",
        ],
    ),
    "a fuser method that raises another error": (
        "fbgemm",
        changed("nn.Conv2d+nn.BatchNorm2d", fuser_method=raises_another_error),
        [
            "nn.Conv2d+nn.BatchNorm2d: fuser_method (is_qat=False, train): "
            "ours builtins.ValueError, torch's builtins.AssertionError"
        ],
    ),
    "getters swapped": (
        "onednn",
        with_getters_swapped,
        [
            "operator.add(nn.Conv2d,*): root_node_getter: ours [* at (2,)], torch's nn.Conv2d at (1,)",
            "operator.add(nn.Conv2d,*): extra_inputs_getter: ours nn.Conv2d at (1,), torch's [* at (2,)]",
        ],
    ),
    "a getter of the other side": (
        "onednn",
        changed("torch.add(*,nn.BatchNorm2d(nn.Conv2d))", _root_node_getter=lambda pattern: pattern[1]),
        ["torch.add(*,nn.BatchNorm2d(nn.Conv2d)): root_node_getter: ours * at (1,), torch's nn.Conv2d at (2, 1)"],
    ),
    "a getter missing": (
        "onednn",
        changed("nn.ReLU(torch.add(nn.Conv2d,*))", _extra_inputs_getter=None),
        [
            "nn.ReLU(torch.add(nn.Conv2d,*)): extra_inputs_getter: "
            "ours None, torch's conformance.configs.onednn.ConvAdd.extra_inputs"
        ],
    ),
}


@pytest.mark.parametrize("backend", BACKENDS)
def test_our_config_equals_torchs(backend: str) -> None:
    upstream = getattr(torchs, f"get_{backend}_backend_config")()
    lines = drift(BACKENDS[backend].factory(), upstream)
    assert not lines, "\n".join([f"{backend} is not torch {torch.__version__}'s:", *lines])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_config_has_as_many_patterns_and_claims_as_are_published(backend: str) -> None:
    entries = BACKENDS[backend].factory().configs
    assert (len(entries), sum(len(entry.dtype_configs) for entry in entries)) == SIZES[backend]


def test_every_engine_runs_one_config() -> None:
    engines = {backend.name: backend.engines for backend in BACKENDS.values()}
    assert list(engines.items()) == [
        ("qnnpack", ("qnnpack",)),
        ("fbgemm", ("fbgemm", "x86")),
        ("onednn", ("onednn",)),
        ("executorch", ("executorch",)),
    ]


def mutable_parts(config: BackendConfig) -> Iterator[object]:
    for entry in config.configs:
        yield from (entry, entry.dtype_configs, entry._input_type_to_index, entry._num_tensor_args_to_observation_type)
        for dtype_config in entry.dtype_configs:
            yield dtype_config
            yield dtype_config.input_dtype_with_constraints
            yield dtype_config.output_dtype_with_constraints
            yield dtype_config.weight_dtype_with_constraints


@pytest.mark.parametrize("backend", BACKENDS)
def test_configs_of_a_factory_and_their_entries_share_no_objects(backend: str) -> None:
    configs = BACKENDS[backend].factory(), BACKENDS[backend].factory()
    holders = Counter(id(part) for config in configs for part in mutable_parts(config))
    assert set(holders.values()) == {1}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_copy_does_not_drift(backend: str) -> None:
    config = BACKENDS[backend].factory()
    assert drift(copy.deepcopy(config), config) == []


@pytest.mark.parametrize("name", CHANGES)
def test_drift_reports(name: str) -> None:
    backend, change, lines = CHANGES[name]
    noticed = drift(change(BACKENDS[backend].factory()), BACKENDS[backend].factory())
    assert len(noticed) == len(lines), noticed
    # The last digits of values that torch computes differ between platforms, so an expected line may end before them.
    assert [line[: len(start)] for line, start in zip(noticed, lines, strict=True)] == lines


@pytest.mark.parametrize("constraint", [field.name for field in dataclasses.fields(DTypeWithConstraints)])
@pytest.mark.parametrize("part", ["input_dtype", "output_dtype", "weight_dtype"])
def test_drift_reports_every_constraint(part: str, constraint: str) -> None:
    change = changed_dtype("nn.Linear", 3, part, **{constraint: 3})
    (line,) = drift(change(BACKENDS["qnnpack"].factory()), BACKENDS["qnnpack"].factory())
    assert line.startswith(f"nn.Linear: dtype_configs[3].{part}.{constraint}: ours 3, torch's ")


@pytest.mark.parametrize("field", ["bias_dtype", "is_dynamic"])
def test_drift_reports_every_field_of_a_dtype_config(field: str) -> None:
    config = BACKENDS["qnnpack"].factory()
    dtype_config: DTypeConfig = entry_of(config, "nn.Linear").dtype_configs[3]
    setattr(dtype_config, field, None)
    (line,) = drift(config, BACKENDS["qnnpack"].factory())
    assert line.startswith(f"nn.Linear: dtype_configs[3].{field}: ours None, torch's ")


@pytest.mark.parametrize("field", ["fuser_method", "_root_node_getter", "_extra_inputs_getter"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_drift_compares_every_function_of_every_entry(backend: str, field: str) -> None:
    config = BACKENDS[backend].factory()
    replaced = [entry for entry in config.configs if getattr(entry, field) is not None]
    for entry in replaced:
        setattr(entry, field, lambda *args: nn.Identity())
    noticed = [line.split(": ")[:2] for line in drift(config, BACKENDS[backend].factory())]
    assert [name for name, _ in noticed] == [pattern_name(config_pattern(entry)) for entry in replaced]
    assert all(words.startswith(field.lstrip("_")) for _, words in noticed)

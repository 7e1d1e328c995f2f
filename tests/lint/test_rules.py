"""Every rule of the linter finds a planted mistake, and nothing in a declaration without one."""

import operator
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.ao.nn.intrinsic as nni
import torch.ao.nn.intrinsic.qat as nniqat
import torch.ao.nn.qat as nnqat
import torch.ao.nn.quantized.reference as nnqr
import torch.nn.functional as F
from torch import nn
from torch.ao.quantization import QConfig, QConfigMapping, default_qconfig, float16_static_qconfig
from torch.ao.quantization.backend_config import (
    BackendConfig,
    BackendPatternConfig,
    DTypeConfig,
    DTypeWithConstraints,
    ObservationType,
)
from torch.ao.quantization.quantize_fx import prepare_fx
from torch.ao.quantization.utils import MatchAllNode

from conformance.lint.linter import declared, lint, named
from conformance.lint.patterns import recorded
from conformance.lint.rules import RULES, error

QUINT8 = DTypeConfig(torch.quint8, torch.quint8)
WEIGHTED = DTypeConfig(torch.quint8, torch.quint8, torch.qint8, torch.float)
SHARED, UNOBSERVED = ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT, ObservationType.INPUT_OUTPUT_NOT_OBSERVED


class Swish(nn.Module):
    """A module of someone else's."""


def swish(x: torch.Tensor) -> torch.Tensor:
    """A function of someone else's."""
    return x * torch.sigmoid(x)


def unary(pattern: Any = nn.ReLU, *dtypes: DTypeConfig) -> BackendPatternConfig:
    return BackendPatternConfig(pattern).set_dtype_configs([*dtypes] or [QUINT8])


def constrained(part: str, **bounds: Any) -> BackendPatternConfig:
    """An entry whose input, output or weight has constraints; quint8 unless they have a dtype."""
    value = DTypeWithConstraints(**{"dtype": torch.quint8, **bounds})
    given: dict[str, Any] = {"input_dtype": torch.quint8, "output_dtype": torch.quint8, f"{part}_dtype": value}
    return unary(nn.ReLU, DTypeConfig(**given))


def linear(**fields: Any) -> BackendPatternConfig:
    """The entry of a linear layer, with some fields changed."""
    entry = unary(nn.Linear, WEIGHTED).set_root_module(nn.Linear).set_reference_quantized_module(nnqr.Linear)
    entry.set_qat_module(nnqat.Linear)
    return changed(entry, **fields)


def changed(entry: BackendPatternConfig, **fields: Any) -> BackendPatternConfig:
    for name, value in fields.items():
        assert hasattr(entry, name)
        setattr(entry, name, value)
    return entry


QAT_LINEAR = unary(nnqat.Linear, WEIGHTED).set_root_module(nn.Linear).set_reference_quantized_module(nnqr.Linear)
FUSED_LINEAR = unary(nni.LinearReLU, WEIGHTED).set_root_module(nn.Linear).set_qat_module(nniqat.LinearReLU)
QAT_FUSED = unary(nniqat.LinearReLU, WEIGHTED).set_root_module(nn.Linear)


def fuse(is_qat: bool, first: nn.Linear, second: nn.ReLU) -> nn.Module:
    return nni.LinearReLU(first, second)  # type: ignore[no-untyped-call]


def fusing(**fields: Any) -> BackendPatternConfig:
    """The entry that fuses a linear layer and a ReLU, with some fields changed."""
    entry = unary((nn.Linear, nn.ReLU), WEIGHTED).set_fuser_method(fuse).set_fused_module(nni.LinearReLU)
    return changed(entry, **fields)


WHOLE = (linear(), QAT_LINEAR, fusing(), FUSED_LINEAR, QAT_FUSED)
"""A declaration without a mistake."""


def raising(is_qat: bool, *modules: nn.Module) -> nn.Module:
    raise KeyError("lost")


def complex_format(nested: Any, dtypes: DTypeConfig = QUINT8) -> BackendPatternConfig:
    return BackendPatternConfig().set_dtype_configs([dtypes])._set_pattern_complex_format(nested)


PLANTED: list[tuple[str, Sequence[BackendPatternConfig], str]] = [
    ("pattern-missing", [BackendPatternConfig().set_dtype_configs([QUINT8])], "no pattern"),
    ("pattern-length", [unary((nn.ReLU,))], "1 operators"),
    ("pattern-length", [unary((nn.Conv2d, nn.BatchNorm2d, nn.ReLU, nn.ReLU))], "4 operators"),
    ("pattern-operator", [unary(nn.ReLU())], "ReLU() is a module, not a class"),
    ("pattern-operator", [unary(dict)], "dict is no class of modules"),
    ("pattern-operator", [unary((nn.Linear, 7))], "7 is no module class"),
    ("pattern-operator", [complex_format(MatchAllNode)], "no operator"),
    ("method-unknown", [unary("hardsigmoid")], "no method 'hardsigmoid'"),
    ("method-unknown", [unary("shape")], "'shape' is an attribute"),
    ("function-not-recorded", [unary(F.tanh)], "F.tanh is traced through"),
    ("function-not-recorded", [unary((nn.Linear, swish))], "swish is traced through"),
    ("container", [unary(nn.Sequential)], "nn.Sequential is a container"),
    ("module-traced-through", [unary(Swish)], "Swish is traced through"),
    ("duplicate", [unary(), unary()], "that of entry 1, nn.ReLU"),
    (
        "duplicate",
        [unary((nn.Linear, nn.ReLU)), complex_format((nn.ReLU, nn.Linear))],
        "that of entry 1, nn.Linear+nn.ReLU",
    ),
    ("root-is-wildcard", [complex_format((torch.add, nn.Conv2d, MatchAllNode))], "its root is a wildcard"),
    ("dtype-configs-not-a-list", [changed(unary(), dtype_configs=QUINT8)], "are a DTypeConfig"),
    ("dtype-config-type", [changed(unary(), dtype_configs=[{"input_dtype": torch.quint8}])], "is a dict"),
    ("promises-nothing", [BackendPatternConfig(nn.ReLU)], "neither dtype configs nor a fuser"),
    ("dtype-unknown", [unary(nn.ReLU, DTypeConfig(torch.int64, torch.int64))], "its input has the dtype torch.int64"),
    ("dtype-config-duplicate", [unary(nn.ReLU, QUINT8, DTypeConfig(torch.quint8, torch.quint8))], "config 2 equals"),
    ("all-float", [unary(nn.ReLU, DTypeConfig(torch.float, torch.float))], "quantizes nothing"),
    ("quant-range", [constrained("input", quant_min_lower_bound=-128)], "quant_min_lower_bound of its input is -128"),
    ("quant-range", [constrained("output", quant_max_upper_bound=256)], "quant_max_upper_bound of its output is 256"),
    (
        "quant-range-empty",
        [constrained("input", quant_min_lower_bound=127, quant_max_upper_bound=0)],
        "quant_min_lower_bound 127",
    ),
    ("scale-range", [constrained("input", scale_min_lower_bound=-1.0)], "scale_min_lower_bound of its input is -1.0"),
    (
        "scale-range",
        [constrained("input", scale_min_lower_bound=2.0, scale_max_upper_bound=1.0)],
        "scale_max_upper_bound 1.0",
    ),
    ("exact-scale", [constrained("output", scale_exact_match=1 / 256)], "no zero_point_exact_match"),
    (
        "exact-scale",
        [constrained("output", scale_exact_match=1 / 256, zero_point_exact_match=300)],
        "300, which is no code of torch.quint8",
    ),
    (
        "exact-scale",
        [constrained("output", scale_exact_match=0.0, zero_point_exact_match=0)],
        "scale_exact_match of its output is 0.0",
    ),
    (
        "constraint-without-codes",
        [constrained("input", dtype=torch.float, quant_min_lower_bound=0)],
        "has constraints, and the dtype torch.float32",
    ),
    (
        "dynamic-output",
        [linear(dtype_configs=[DTypeConfig(torch.quint8, torch.quint8, torch.qint8, torch.float, True)]), QAT_LINEAR],
        "output dtype torch.quint8",
    ),
    (
        "dynamic-input",
        [linear(dtype_configs=[DTypeConfig(torch.float, torch.float, torch.qint8, torch.float, True)]), QAT_LINEAR],
        "input dtype torch.float32",
    ),
    ("observation-type", [changed(unary(), observation_type="shared")], "'shared'"),
    (
        "observation-type",
        [changed(unary(torch.add), _num_tensor_args_to_observation_type={5: SHARED})],
        "with 5 tensor arguments",
    ),
    (
        "shared-observer-other-dtype",
        [changed(unary(nn.ReLU, DTypeConfig(torch.quint8, torch.qint8)), observation_type=SHARED)],
        "its output torch.qint8",
    ),
    ("static-dtypes-differ", [unary(F.gelu, DTypeConfig(torch.quint8, torch.float16))], "its output torch.float16"),
    (
        "shared-observer-other-range",
        [changed(unary(torch.mul), observation_type=SHARED)],
        "the result of torch.mul has another range",
    ),
    (
        "shared-observer-other-range",
        [changed(linear(), observation_type=SHARED), QAT_LINEAR],
        "the result of nn.Linear has another range",
    ),
    (
        "shared-observer-exact-output",
        [changed(constrained("output", scale_exact_match=1 / 256, zero_point_exact_match=0), observation_type=SHARED)],
        "its output has scale_exact_match",
    ),
    ("unobserved-activations", [changed(unary(), observation_type=UNOBSERVED)], "its input has the dtype"),
    ("module-class", [linear(root_module=nn.Linear(2, 2)), QAT_LINEAR], "its root_module is Linear"),
    ("module-class", [linear(qat_module="nnqat.Linear"), QAT_LINEAR], "its qat_module is 'nnqat.Linear'"),
    ("root-not-in-pattern", [*WHOLE[:2], fusing(root_module=nn.Conv2d), *WHOLE[3:]], "its root module is nn.Conv2d"),
    ("reference-without-root", [linear(root_module=None), QAT_LINEAR], "no root module"),
    (
        "reference-missing",
        [unary(nn.Linear, WEIGHTED).set_root_module(nn.Linear)],
        "no entry has a reference module for nn.Linear",
    ),
    ("root-missing", [unary(nn.Linear, WEIGHTED)], "a weight dtype and no root module"),
    ("reference-from-float", [linear(reference_quantized_module=nn.Linear), QAT_LINEAR], "nn.Linear has no from_float"),
    ("qat-from-float", [linear(qat_module=nn.Linear)], "nn.Linear has no from_float"),
    ("qat-of-other-module", [linear(qat_module=nnqat.Conv2d), unary(nnqat.Conv2d)], "is made from nn.Conv2d"),
    ("qat-module-unmatched", [linear()], "no entry has the pattern nnqat.Linear"),
    ("fused-module-unmatched", [*WHOLE[:3], QAT_FUSED], "no entry has the pattern nni.LinearReLU"),
    ("fused-without-fuser", [*WHOLE[:2], fusing(fuser_method=None), *WHOLE[3:]], "a fused module and no fuser"),
    (
        "fuser-signature",
        [*WHOLE[:2], fusing(fuser_method=lambda linear, relu: fuse(False, linear, relu)), *WHOLE[3:]],
        "does not take is_qat and 2 modules",
    ),
    ("fuser-signature", [linear(fuser_method=fuse), QAT_LINEAR], "a fuser and a single operator"),
    ("fuser-signature", [*WHOLE[:2], fusing(fuser_method="fuse"), *WHOLE[3:]], "its fuser is 'fuse'"),
    ("fuser-raises", [*WHOLE[:2], fusing(fuser_method=raising), *WHOLE[3:]], "raises KeyError: 'lost'"),
    (
        "fuser-result",
        [*WHOLE[:2], fusing(fuser_method=lambda is_qat, linear, relu: nn.Tanh()), *WHOLE[3:]],
        "returns a nn.Tanh in eval mode, which no entry has",
    ),
    (
        "fuser-result",
        [*WHOLE[:2], fusing(fuser_method=lambda is_qat, linear, relu: linear), *WHOLE[3:]],
        "returns a nn.Linear for QAT, and its fused module is another class",
    ),
    (
        "argument-index",
        [changed(unary(F.linear, WEIGHTED), _input_type_to_index={"wait": 1})],
        "an index of 'wait'",
    ),
    (
        "argument-index",
        [changed(unary(F.instance_norm, WEIGHTED), _input_type_to_index={"weight": 1})],
        "that of the parameter 3",
    ),
    ("argument-index", [unary(F.instance_norm, WEIGHTED)], "no index of the weight"),
    (
        "no-lowering",
        [unary(nn.Bilinear, QUINT8).set_root_module(nn.Bilinear).set_reference_quantized_module(nnqat.Linear)],
        "no lowering of nnqat.Linear",
    ),
]


def found(entries: Sequence[BackendPatternConfig]) -> list[tuple[str, str]]:
    return [(problem.rule.id, f"{problem.where}: {problem.text}") for problem in lint(declared("planted", entries))]


@pytest.mark.parametrize(("rule", "entries", "text"), PLANTED, ids=[rule for rule, _, _ in PLANTED])
def test_a_planted_mistake_is_found(rule: str, entries: Sequence[BackendPatternConfig], text: str) -> None:
    assert any(rule == found_rule and text in sentence for found_rule, sentence in found(entries)), found(entries)


def test_every_rule_has_a_planted_mistake() -> None:
    assert {rule for rule, _, _ in PLANTED} == {*RULES}


def test_nothing_is_found_without_a_mistake() -> None:
    assert found(WHOLE) == []


def test_rules_have_ids_of_their_own() -> None:
    with pytest.raises(ValueError, match="two rules have the id duplicate"):
        error("duplicate", "")(lambda one, declared: iter(()))


@pytest.mark.parametrize(
    ("function", "expected"),
    [(torch.relu, True), (F.linear, True), (operator.add, True), (F.sigmoid, False), (swish, False), (len, None)],
)
def test_what_fx_records_is_found_by_calling_it(function: Any, expected: bool | None) -> None:
    assert recorded(function) is expected


def test_a_config_of_a_list_with_an_entry_twice_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch keeps the last one, so the config itself does not show it."""
    (tmp_path / "twice.py").write_text(
        "import torch\n"
        "from torch import nn\n"
        "from torch.ao.quantization.backend_config import BackendConfig, BackendPatternConfig, DTypeConfig\n"
        "def entry():\n"
        "    return BackendPatternConfig(nn.ReLU).set_dtype_configs([DTypeConfig(torch.quint8, torch.quint8)])\n"
        "CONFIG = BackendConfig('twice').set_backend_pattern_configs([entry(), entry()])\n"
        "CHANGED = BackendConfig('once').set_backend_pattern_configs([entry()]).set_backend_pattern_config(entry())\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert [(one.rule.id, one.where) for one in lint(named("twice:CONFIG"))] == [("duplicate", "nn.ReLU")]
    assert lint(named("twice:CHANGED")) == []


def test_no_qconfig_satisfies_two_dtypes_of_activations() -> None:
    """What the rule says, by torch: the operator is not observed, whatever the dtype of the QConfig's observer is."""

    class Gelu(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.gelu(x)

    def observed(dtypes: DTypeConfig, qconfig: QConfig) -> bool:
        config = BackendConfig("one").set_backend_pattern_configs([unary(F.gelu, dtypes)])
        mapping = QConfigMapping().set_global(qconfig)
        prepared = prepare_fx(Gelu().eval(), mapping, (torch.zeros(2, 3),), backend_config=config)
        return any(node.op == "call_module" for node in prepared.graph.nodes)

    assert observed(DTypeConfig(torch.quint8, torch.quint8), default_qconfig)
    for qconfig in (default_qconfig, float16_static_qconfig):
        assert not observed(DTypeConfig(torch.quint8, torch.float16), qconfig)

"""Audits of networks that torchao quantizes in place."""

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from conformance.__main__ import main
from conformance.audit import audit
from conformance.audit.auditing import host
from conformance.audit.causes import explained
from conformance.audit.in_place import InPlace, in_place
from conformance.audit.network import Network, network
from conformance.cases.claims import backend
from conformance.errors import UsageError
from conformance.results.audits import Arithmetic, Audit
from conformance.results.ledger_file import load
from tests.audit.causes_in_place import IN_PLACE, Cause

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torchao") is None, reason="torchao is not installed")
VOCABULARY = 96


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


class Block(nn.Module):
    """A block of a transformer with attention that is causal."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        parts = self.qkv(self.before(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, tokens, width))
        result: Tensor = x + self.down(F.gelu(self.up(self.between(x))))
        return result


class Language(nn.Module):
    """A language model whose table is its head, too."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, 64)
        self.blocks, self.norm = nn.Sequential(Block(64, 4), Block(64, 4)), nn.LayerNorm(64)
        self.head = nn.Linear(64, VOCABULARY, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(self.blocks(self.table(x))))
        return logits


def language() -> nn.Module:
    torch.manual_seed(0)
    return Language().eval()


def tokens() -> list[Tensor]:
    torch.manual_seed(1)
    return [torch.randint(0, VOCABULARY, (2, 12)) for _ in range(2)]


def of_layers(*layers: nn.Module, shape: tuple[int, ...] = (3, 64), dtype: torch.dtype = torch.float32) -> Network:
    torch.manual_seed(1)
    batches = [torch.randn(*shape).to(dtype) for _ in range(2)]
    return network("layers", nn.Sequential(*layers).to(dtype).eval(), batches)


def audited(subject: Network, config: str, engine: str | None = None) -> Audit:
    return explained(in_place(config, engine, backend("torchao")).audit(subject), load(), host())


def faulty(change: Callable[[Any], None]) -> InPlace:
    """torchao with a fault in what it makes of the first layer."""
    way = in_place("Int8DynamicActivationInt8WeightConfig()", None, backend("torchao"))

    def quantizes(model: nn.Module) -> None:
        way.quantizes(model)
        change(model[0])  # type: ignore[index]

    return InPlace(way.name, quantizes, way.config, way.engine, way.claims)


def test_a_language_model_runs_in_integers_but_for_its_table() -> None:
    found = audited(network("language", language(), tokens()), "Int8DynamicActivationInt8WeightConfig()")
    assert found.holds
    assert [layer.name for layer in found.layers if layer.arithmetic is not Arithmetic.INTEGER] == ["table"]
    head = found.layers[-1]
    assert (head.name, head.kernels, head.claim) == (
        "head",
        ("aten._int_mm",),
        "torchao/nn.Linear/int8_dynamic-row-symmetric-float32",
    )
    assert head.notes == ("shares its weight with table.weight, which quantize_ leaves in float: both are stored",)
    assert head.agreement is not None
    assert (head.agreement.total, head.agreement.wrong) == (2 * 12 * VOCABULARY, 0)
    assert found.engine_db is not None
    assert found.reference_db is not None
    assert abs(found.engine_db - found.reference_db) < 1
    assert found.size_ratio is not None
    assert 0.25 < found.size_ratio < 0.5


@pytest.mark.parametrize("engine", ["torch-compiled", "torch-packaged"])
def test_a_compiled_network_has_weights_in_codes_alone(engine: str) -> None:
    config = "IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(16))"  # declared for groups of 32
    found = audited(of_layers(nn.Linear(64, 32), nn.ReLU()), config, engine)
    assert found.holds
    (layer,) = found.layers
    assert (layer.arithmetic, layer.claim, layer.faults) == (Arithmetic.NAME_ONLY, None, ())
    assert layer.agreement is not None
    assert layer.agreement.total == 3 * 32


def code(layer: Any) -> None:
    layer.weight.qdata[3, 5] += 1 - 2 * (layer.weight.qdata[3, 5] > 0)


def hooked(layer: Any) -> None:
    layer.register_forward_hook(lambda module, taken, given: given * 1.01)


@pytest.mark.parametrize(("change", "check"), [(code, "annotated"), (hooked, "numerics")])
def test_a_planted_fault_is_blamed_on_its_layer_and_is_new(change: Callable[[Any], None], check: str) -> None:
    found = faulty(change).audit(of_layers(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16)))
    assert [layer.name for layer in found.blamed] == ["0"]
    assert {fault.check for fault in found.blamed[0].faults} == {check}
    assert not found.holds


def test_a_layer_that_stays_in_float_silently_is_a_broken_promise() -> None:
    config = "Int4WeightOnlyConfig(group_size=32)"
    found = audited(of_layers(nn.Linear(72, 32), shape=(3, 72), dtype=torch.bfloat16), config)
    (layer,) = found.layers
    assert (layer.unkept, layer.reason) == (True, "quantize_ leaves its weight as it is, without a word")


def test_a_layer_that_is_refused_is_named() -> None:
    subject = of_layers(nn.Linear(64, 40), nn.Linear(40, 8))
    found = audited(subject, "IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32))")
    assert found.stage == "prepare"
    assert found.failure.startswith("quantize_ raises ")
    assert found.advice.startswith("leave 1 out: ")


def test_what_no_declared_config_is_equal_to_is_not_judged() -> None:
    subject = of_layers(nn.Linear(64, 16))
    found = audited(subject, "Int8DynamicActivationInt8WeightConfig(reduce_range=True, granularity=PerTensor())")
    (layer,) = found.layers
    assert layer.agreement is None
    assert "neither its codes nor its values were judged" in layer.notes[0]


class Codes(Tensor):
    """A weight of somebody else's."""


def test_a_weight_of_an_unknown_type_is_not_taken_for_float() -> None:
    def quantizes(model: Any) -> None:
        model[0].weight = nn.Parameter(model[0].weight.detach().as_subclass(Codes), requires_grad=False)

    (layer,) = in_place(quantizes, None, backend("torchao")).audit(of_layers(nn.Linear(64, 8))).layers
    assert (layer.arithmetic, layer.agreement) == (Arithmetic.NAME_ONLY, None)
    assert layer.notes[0].startswith("its weight is a Codes, of which nothing is known")


def test_a_network_may_choose_its_layers_by_their_values() -> None:
    class Routed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.large, self.small = nn.Linear(64, 1), nn.Linear(64, 8), nn.Linear(64, 8)

        def forward(self, x: Tensor) -> Tensor:
            chosen = self.large if self.gate(x).mean() > 0 else self.small
            return torch.relu(chosen(x))

    def flipped(model: Any) -> None:
        for expert in (model[0].large, model[0].small):
            in_place("Int8WeightOnlyConfig()", None, backend("torchao")).quantizes(expert)
        model[0].gate.weight = nn.Parameter(-model[0].gate.weight)
        model[0].gate.bias = nn.Parameter(-model[0].gate.bias)

    found = in_place(flipped, None, backend("torchao")).audit(of_layers(Routed()))
    assert len([layer for layer in found.layers if "does not call it" in " ".join(layer.notes)]) == 1


def test_a_layer_that_is_not_called_says_so() -> None:
    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.op = nn.Linear(64, 8)

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(x, self.op.weight, self.op.bias)

    (layer,) = audited(of_layers(Reads()), "Int8WeightOnlyConfig()").layers
    assert (layer.agreement, "what it gives was not judged" in layer.notes[0]) == (None, True)


@pytest.mark.parametrize("cause", IN_PLACE, ids=[cause.name for cause in IN_PLACE])
def test_a_minimal_model_shows_the_cause(cause: Cause) -> None:
    cause.layer.reset_parameters()
    shape = (*cause.shape, cause.layer.in_features)
    found = audited(of_layers(cause.layer, shape=shape, dtype=getattr(torch, cause.dtype)), cause.config, cause.engine)
    causes = {fault.cause for layer in found.blamed for fault in layer.faults}
    causes |= {found.cause} if found.failure else set()
    assert causes == {cause.id, *cause.beside}, found.failure


@pytest.mark.parametrize(
    ("config", "engine", "message"),
    [
        ("Int8", None, r"--quantize 'Int8': NameError: .*; write a config, such as one of Float8"),
        ("torchao.quantization:Int8WeightOnlyConfig", None, r"is a class: write Int8WeightOnlyConfig"),
        ("Int8WeightOnlyConfig", None, r"is a class: write Int8WeightOnlyConfig\(\) for its defaults"),
        ("Int8WeightOnlyConfig()", "x86", r"unknown engine 'x86': choose from torch-eager, .*quantized in place"),
    ],
)
def test_wrong_input_is_named_with_the_fix(config: str, engine: str | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        in_place(config, engine, backend("torchao"))


def test_declarations_of_patterns_are_refused() -> None:
    with pytest.raises(UsageError, match="--quantize needs declarations of workflows, and fbgemm has patterns"):
        in_place("Int8WeightOnlyConfig()", None, backend("fbgemm"))


def quantizes_the_first(model: Any) -> None:
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    quantize_(model[0], Int8WeightOnlyConfig())


def layers() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 32), nn.Linear(32, 8)).eval()


def test_the_function_takes_a_config() -> None:
    from torchao.quantization import Int8WeightOnlyConfig

    subject = [torch.randn(3, 64) for _ in range(2)]
    assert audit(layers(), subject, quantize=Int8WeightOnlyConfig()).holds
    with pytest.raises(UsageError, match="quantize is a way of its own"):
        audit(layers(), subject, quantizer="xnnpack", quantize=Int8WeightOnlyConfig())


def test_the_command_takes_a_function(capsys: pytest.CaptureFixture[str]) -> None:
    named = f"{__name__}:quantizes_the_first"
    status = main(["audit", f"{__name__}:layers", "--shape", "3,64", "--quantize", named])
    assert status == 0
    assert "usable" in capsys.readouterr().out

"""Operators that are tried from their signatures."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.ao.quantization.backend_config import BackendConfig, BackendPatternConfig

from conformance.cases.claims import BackendClaims, Claim, backend, claims_of
from conformance.cases.followers import Follower, follower
from conformance.cases.operators.signatures import NAME, tried
from conformance.cases.operators.variant import Operand
from conformance.cases.runs import Run, runs
from conformance.cases.sources import model_source
from conformance.cases.variants import followed, from_signature, in_tables, not_covered, variants
from conformance.configs import dtypes
from conformance.configs.engines import ENGINE_TABLE
from conformance.engines.registry import engine_name
from conformance.execution.batch import Judged, judge_runs
from conformance.models.build import float_outputs, subject
from conformance.results.rows import Row
from conformance.results.verdicts import Verdict

REFERENCE = "conformance.engines.reference:ReferenceEngine"
MODULES = """
import torch
from torch import Tensor, nn


class Gate(nn.Module):
    def __init__(self, channels: int, slope: float, *, sharp: bool, mode: str = "soft") -> None:
        super().__init__()
        self.weight, self.slope = nn.Parameter(torch.empty(channels, channels)), slope

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x @ self.weight) + self.slope


class Unclear(nn.Module):
    def __init__(self, sizes) -> None:
        super().__init__()


class Noise(nn.Module):
    def forward(self, x):
        return x + torch.rand(())


class Pair(nn.Module):
    def forward(self, x):
        return x, x


def blended(x: Tensor, y: Tensor, weight: Tensor, share: float) -> Tensor:
    return x * share + y * weight.sum()


def no_operands(share: float = 1.0) -> float:
    return share
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module with operators of a third party."""
    (tmp_path / "theirs.py").write_text(MODULES)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "theirs", raising=False)
    tried.cache_clear()
    return "theirs"


@pytest.fixture(autouse=True)
def _engines() -> Iterator[None]:
    """The table of engines is as it was afterwards."""
    before = dict(ENGINE_TABLE)
    yield
    ENGINE_TABLE.clear()
    ENGINE_TABLE.update(before)


def claim(pattern: object, dtype_config: object = dtypes.STATIC_QUINT8) -> Claim:
    return claims(pattern, dtype_config).claims[0]


def claims(pattern: object, dtype_config: object = dtypes.STATIC_QUINT8) -> BackendClaims:
    entry = BackendPatternConfig(pattern).set_dtype_configs([dtype_config])  # type: ignore[arg-type, list-item]
    config = BackendConfig("mine").set_backend_pattern_config(entry)
    return BackendClaims("mine", config, ("reference",), claims_of("mine", config), "")


def judged(batch: list[Run]) -> list[Row]:
    """The rows of runs on the reference engine."""
    engine_name(REFERENCE)
    outcomes = judge_runs(batch, lambda _: None)
    return [outcome.row for outcome in outcomes if isinstance(outcome, Judged)]


@pytest.mark.parametrize(
    ("name", "init", "call"),
    [
        ("nn.Mish", "nn.Mish()", "self.op(x)"),
        ("nn.CosineSimilarity", "nn.CosineSimilarity()", "self.op(x, y)"),
        ("nn.Bilinear", "nn.Bilinear(4, 4, 4)", "self.op(x, y)"),
        ("F.silu", "", "F.silu(x)"),
        ("F.scaled_dot_product_attention", "", "F.scaled_dot_product_attention(x, y, z)"),
        ("torch.bmm", "", "torch.bmm(x, y)"),
        ("Tensor.exp", "", "x.exp()"),
        ("Tensor.pow", "", "x.pow(y)"),
    ],
)
def test_an_operator_of_torch_is_called_as_its_signature_says(name: str, init: str, call: str) -> None:
    variant = tried(name).variant
    assert variant is not None
    assert (variant.name, variant.init, variant.call) == (NAME, init, call)


def test_arguments_come_from_annotations_and_defaults(modules: str) -> None:
    gate = tried(f"{modules}.Gate").variant
    assert gate is not None
    assert (gate.init, gate.operands, gate.output) == (
        f"{modules}.Gate(4, 0.5, sharp=False)",
        {"x": Operand((2, 4, 6, 4))},
        (2, 4, 6, 4),
    )
    blended = tried(f"{modules}.blended").variant
    assert blended is not None
    assert blended.call == f"{modules}.blended(x, y, weight=self.weight, share=0.5)"
    assert blended.parameters == {"weight": (4,)}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("theirs.Unclear", "the signature of theirs.Unclear does not say what 'sizes' may be"),
        (
            "theirs.Noise",
            "theirs.Noise takes none of the operands that are tried: ValueError: it returns something else",
        ),
        ("theirs.Pair", "theirs.Pair takes none of the operands that are tried: ValueError: it returns tuple"),
        ("theirs.no_operands", "theirs.no_operands takes 0 operands"),
        ("theirs.Missing", "theirs.Missing cannot be imported"),
        ("Tensor.swap", "Tensor.swap takes none of the operands that are tried: AttributeError"),
        ("torch.device", "torch.device is a class, but no module"),
    ],
)
def test_an_operator_that_cannot_be_called_is_not_tried(modules: str, name: str, reason: str) -> None:
    assert tried(name).variant is None
    assert tried(name).reason.startswith(reason)


def test_the_default_variant_of_an_operator_says_how_it_follows_another_one() -> None:
    assert follower("nn.ELU") == Follower("nn.ELU()", "self.{name}({inner})")
    assert follower("F.gelu") == Follower("", "F.gelu({inner})")
    assert follower("F.prelu") == Follower("", "F.prelu({inner}, self.{name}_weight)", {"{name}_weight": (1,)})
    assert follower("torch.matmul") is None


def test_the_operators_that_follow_another_one_are_tried_with_their_own_options() -> None:
    def operators(claim: str) -> dict[str, tuple[str, ...]]:
        (found,) = (one for one in backend(claim.partition("/")[0]).claims if one.id == claim)
        models = {variant.name: model_source(found, variant) for variant in followed(found)}
        return {
            name: tuple(part.partition(" = ")[2] for part in model.init[1:]) or model.forward[1:-1]
            for name, model in models.items()
        }

    assert operators("onednn/nn.Linear+nn.BatchNorm1d+nn.LeakyReLU/static-quint8") == {
        "norm_no_affine": ("nn.BatchNorm1d(8, affine=False)", "nn.LeakyReLU(0.25)"),
        "norm_no_statistics": ("nn.BatchNorm1d(8, track_running_stats=False)", "nn.LeakyReLU(0.25)"),
        "norm_momentum_none": ("nn.BatchNorm1d(8, momentum=None)", "nn.LeakyReLU(0.25)"),
        "norm_eps": ("nn.BatchNorm1d(8, eps=0.5)", "nn.LeakyReLU(0.25)"),
        "in_place": ("nn.BatchNorm1d(8)", "nn.LeakyReLU(0.25, inplace=True)"),
    }
    assert operators("fbgemm/nn.Conv2d+nn.ReLU/static-quint8") == {"in_place": ("nn.ReLU(inplace=True)",)}
    assert operators("fbgemm/nn.Conv2d+F.relu/static-quint8") == {"in_place": ("y = F.relu(y, inplace=True)",)}
    assert operators("fbgemm/nn.BatchNorm2d/static-quint8") == {}


def test_a_pattern_with_such_an_operator_has_one_variant_and_names_it() -> None:
    found = claim((nn.Conv2d, nn.Mish), dtypes.STATIC_QUINT8_WEIGHTED)
    (variant,) = variants(found)
    assert (variant.name, from_signature(found), in_tables(found)) == (NAME, ["nn.Mish"], False)
    known = claim((nn.Conv2d, nn.Hardswish), dtypes.STATIC_QUINT8_WEIGHTED)
    assert (from_signature(known), in_tables(known)) == ([], True)
    assert len(variants(known)) > 1


def test_a_softmax_follows_operators_of_any_shape() -> None:
    found = claim((torch.add, nn.Softmax))
    for variant in variants(found):
        assert "self.softmax = nn.Softmax(dim=-1)" in model_source(found, variant).init, variant.name


def test_a_pattern_whose_operators_do_not_fit_together_is_not_covered() -> None:
    found = claim((nn.Linear, nn.MaxUnpool2d))
    assert not_covered(found).startswith("no operator 'nn.MaxUnpool2d' in the tables: the signature")
    assert "torch.bmm takes more operands than the result before it" in not_covered(claim((nn.Linear, torch.bmm)))
    assert not_covered(claim((nn.Linear, nn.ChannelShuffle))) != ""


def test_a_function_with_parameters_follows_another_one_with_parameters_of_its_own() -> None:
    engine_name(REFERENCE)
    entry = claims((torch.addmm, nn.functional.prelu))
    run = Run(entry, entry.claims[0], "ptq", variants(entry.claims[0])[0], "exact", "reference")
    assert "y = F.prelu(torch.addmm(self.bias, x, self.weight), self.prelu_weight)" not in run.model.source
    assert "y = F.prelu(y, self.prelu_weight)" in run.model.source
    built = subject(run)
    assert {name for name, _ in built.model.named_parameters()} == {"weight", "bias", "prelu_weight"}
    assert float(built.model.get_parameter("prelu_weight")) in (0.5, 1.0)  # a slope is a power of two
    assert all(bool(y.isfinite().all()) for y in float_outputs(built))


def test_tried_operators_are_judged_by_the_oracle() -> None:
    patterns = (nn.Mish, torch.addmm, nn.functional.scaled_dot_product_attention)
    rows = judged([run for pattern in patterns for run in runs(claims(pattern)) if run.profile == "exact"])
    assert len(rows) > 12
    assert {row.verdict for row in rows} == {Verdict.CONFORMS}


def test_the_weight_of_a_layer_that_torch_does_not_have_is_quantized_by_the_oracle(modules: str) -> None:
    import theirs  # type: ignore[import-not-found]

    (run,) = [
        run
        for run in runs(claims(theirs.Gate, dtypes.STATIC_QUINT8_WEIGHTED))
        if run.profile == "exact" and run.flow == "ptq"
    ]
    assert f"import {modules}\n" in run.model.source
    (row,) = judged([run])
    # torch leaves the weight of a module without a reference module in float
    assert row.checks["reference"] == "fail"
    assert "quantizes nothing with the scale 0.0078125 and zero point 0.0 of weight" in row.detail


class Shifted(nn.Module):
    """A module that a function cannot name: it is not importable by its name."""

    def forward(self, x: Tensor) -> Tensor:
        return x + 1


def test_a_local_class_is_not_covered() -> None:
    class Local(Shifted):
        pass

    assert "cannot be imported" in not_covered(claim(Local))

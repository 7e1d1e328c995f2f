"""torch with less repeated work behaves like torch."""

import copy
import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

from conformance.cases.claims import backend
from conformance.configs.registry import BACKENDS
from conformance.models import torchs
from conformance.shortcuts import without


class Doubled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        doubled: Tensor = self.inner(x) * 2
        return doubled


class Seeing(nn.Module):
    """A module that records the methods of nn.Module during its trace."""

    def __init__(self, inner: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.layer, self.inside, self.seen = nn.ReLU(), inner, list[object]()

    def forward(self, x: Tensor) -> Tensor:
        self.inside()
        self.seen += [vars(nn.Module)["__call__"], vars(nn.Module)["__getattr__"]]
        result: Tensor = self.layer(x)
        return result


def test_a_trace_leaves_the_methods_of_modules_in_place() -> None:
    before = [vars(nn.Module)["__call__"], vars(nn.Module)["__getattr__"]]
    fx.symbolic_trace(seeing := Seeing())
    assert seeing.seen == before
    with without("tracing"):
        fx.symbolic_trace(seeing := Seeing())
    assert not set(seeing.seen) & set(before)
    assert [vars(nn.Module)["__call__"], vars(nn.Module)["__getattr__"]] == before


def test_a_trace_within_a_trace_sees_its_own_modules() -> None:
    inner: list[fx.GraphModule] = []
    traced = fx.symbolic_trace(Seeing(lambda: inner.append(fx.symbolic_trace(Doubled()))))
    for graph in (traced.graph, inner[0].graph):
        assert [node.op for node in graph.nodes if node.op == "call_module"] == ["call_module"]
    assert torch.equal(traced(torch.tensor([-1.0, 2.0])), torch.tensor([0.0, 2.0]))


def test_a_trace_that_raises_leaves_no_method_behind() -> None:
    def raises() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fx.symbolic_trace(Seeing(raises))
    assert torch.equal(nn.ReLU()(torch.tensor([-1.0])), torch.zeros(1))
    assert all(len(methods) == 1 for methods in torchs._PATCHED.values())


def test_a_graph_module_that_raises_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    model = fx.symbolic_trace(Doubled())
    model.inner = nn.Identity()
    with pytest.raises(TypeError):
        model(None)
    assert capsys.readouterr().err.strip() == ""
    with without("messages"), pytest.raises(TypeError):
        model(None)
    assert "Call using an FX-traced Module" in capsys.readouterr().err


def test_a_copy_of_a_graph_module_has_code_of_its_own() -> None:
    model = fx.symbolic_trace(Doubled())
    copied = copy.deepcopy(model)
    assert copied.code == model.code
    (factor,) = (node for node in copied.graph.nodes if node.op == "call_function")
    factor.args = (factor.args[0], 3)
    copied.recompile()
    x = torch.tensor([1.0])
    assert (float(model(x)), float(copied(x)), float(copy.deepcopy(copied)(x))) == (2.0, 3.0, 3.0)
    copied.inner = nn.Identity()
    assert float(copied(-x)) == -3.0
    assert float(model(-x)) == 0.0


def test_a_copy_made_while_code_is_postponed_has_its_own_code_in_the_end() -> None:
    with torchs.code_postponed():
        model = fx.symbolic_trace(Doubled())
        copied = torchs.with_code(copy.deepcopy(model))
    outside = copy.deepcopy(model)
    for each in (model, copied, outside):
        assert float(each(torch.tensor([1.0]))) == 2.0


def test_modules_of_equal_code_are_scripted() -> None:
    models = [fx.symbolic_trace(Doubled()) for _ in range(2)]
    assert models[0].forward.__code__ is models[1].forward.__code__
    assert "inner" in inspect.getsource(models[1].forward)
    for model in models:
        assert float(torch.jit.script(model)(torch.tensor([1.0]))) == 2.0
    with without("code"):
        assert fx.symbolic_trace(Doubled()).forward.__code__ is not models[0].forward.__code__


@pytest.fixture
def created(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The observers that constructors create."""
    observers: list[object] = []
    create = torchs._create

    def recorded(self: Any, *inputs: Any, **options: Any) -> Any:
        observers.append(create(self, *inputs, **options))
        return observers[-1]

    monkeypatch.setattr(torchs, "_create", recorded)
    return observers


def test_an_observer_that_is_read_is_created_once(created: list[object]) -> None:
    qconfig = torch.ao.quantization.get_default_qconfig("fbgemm")  # type: ignore[no-untyped-call]
    dtypes = [torchs.ao_utils.get_qconfig_dtypes(qconfig) for _ in range(3)]
    assert dtypes == [(torch.quint8, torch.qint8, False)] * 3
    assert len(created) == 2
    assert qconfig.activation() is not qconfig.activation()  # those that observe are new
    with without("observers"):
        torchs.ao_utils.get_qconfig_dtypes(qconfig)
    assert len(created) == 6


@pytest.mark.parametrize("name", [name for name in BACKENDS if name != "executorch"])
def test_tables_are_derived_before_they_are_asked_for(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = copy.copy(backend(name).config)  # of which no table is kept
    torchs.derive_tables(config)
    asked: list[object] = []
    monkeypatch.setattr(type(config), "configs", property(lambda self: asked.append(self)), raising=False)
    for owner, function in torchs.TABLES:
        getattr(owner, function)(config)
    assert not asked


def test_a_config_without_tables_is_left_to_its_runs() -> None:
    asked: list[object] = []

    class Raises(torch.ao.quantization.backend_config.BackendConfig):
        configs = property(lambda self: asked.append(self) or 1 / 0)  # type: ignore[func-returns-value]

    torchs.derive_tables(Raises("raises"))
    assert asked

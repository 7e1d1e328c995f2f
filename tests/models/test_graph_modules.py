"""Graph modules and deep copies behave as they do without shortcuts."""

import copy
import inspect
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

from conformance.models import graph_modules
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


class Root(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * math.sqrt(4.0) + math.floor(x)  # type: ignore[arg-type]


def test_functions_of_math_are_wrapped_once_and_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    first, again = (fx.symbolic_trace(Root()).graph for _ in range(2))
    with without("tracing"):
        expected = fx.symbolic_trace(Root()).graph
    assert str(first) == str(again) == str(expected)
    assert "math.floor" in str(first)
    assert graph_modules._function_wrapped(math.exp) is graph_modules._function_wrapped(math.exp)
    assert math.floor(1.5) == 1


def test_the_options_of_a_code_generator_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    class Few(fx.graph.CodeGen):
        def generate_output(self, output_args: Any) -> str:  # type: ignore[override]
            return super().generate_output(output_args)

    model = fx.symbolic_trace(Doubled())
    model.graph.set_codegen(Few())
    code = model.graph.python_code("self").src
    monkeypatch.delattr(inspect, "signature")
    assert model.graph.python_code("self").src == code
    with without("code"), pytest.raises(AttributeError, match="signature"):
        model.graph.python_code("self")


def test_a_trace_that_raises_leaves_no_method_behind() -> None:
    def raises() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fx.symbolic_trace(Seeing(raises))
    assert torch.equal(nn.ReLU()(torch.tensor([-1.0])), torch.zeros(1))
    assert all(len(methods) == 1 for methods in graph_modules._PATCHED.values())


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
    with graph_modules.code_postponed():
        model = fx.symbolic_trace(Doubled())
        copied = graph_modules.with_code(copy.deepcopy(model))
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


def test_tensors_are_copied_as_torch_copies_them() -> None:
    base = torch.arange(24.0).reshape(2, 3, 4)
    quantized = torch.quantize_per_tensor(base, 0.5, 3, torch.quint8)
    marked = torch.ones(2)
    marked.mark = "kept"  # type: ignore[attr-defined]
    kinds = {
        "permuted": base.clone().permute(2, 0, 1),
        "expanded": torch.ones(1).expand(3),
        "part": base.clone()[:, 1:],
        "one": torch.ones(()),
        "empty": torch.empty(0, 3),
        "integers": torch.arange(3),
        "quantized": quantized,
        "complex": torch.ones(2, dtype=torch.complex64).conj(),
        "sparse": torch.eye(2).to_sparse(),
        "trained": torch.ones(2, requires_grad=True),
        "marked": marked,
    }
    copies = copy.deepcopy(kinds)
    with without("copies"):
        expected = copy.deepcopy(kinds)
    for name, copied in copies.items():
        assert (copied.dtype, copied.shape, copied.layout) == (
            expected[name].dtype,
            expected[name].shape,
            expected[name].layout,
        )
        if name != "sparse":
            assert copied.stride() == expected[name].stride(), name
            assert copied.untyped_storage().nbytes() == expected[name].untyped_storage().nbytes(), name
            assert copied.data_ptr() != kinds[name].data_ptr() or name == "empty"
        assert torch.equal(copied.to_dense(), expected[name].to_dense()), name
        assert copied.requires_grad == expected[name].requires_grad
        assert vars(copied) == vars(expected[name])


def test_a_copy_of_a_state_has_its_metadata() -> None:
    state = torch.nn.BatchNorm1d(2).state_dict()
    copied = copy.deepcopy(state)
    assert copied._metadata == state._metadata == {"": {"version": 2}}  # type: ignore[attr-defined]
    assert torch.equal(copied["weight"], state["weight"])
    assert copied["weight"] is not state["weight"]


def test_copies_share_what_their_originals_share() -> None:
    whole = torch.arange(4.0)
    whole_copy, part, again = copy.deepcopy([whole, whole[1:], whole])
    whole_copy[1] = 9.0
    assert float(part[0]) == 9.0
    assert again is whole_copy
    assert float(whole[1]) == 1.0

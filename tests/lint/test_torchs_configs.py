"""What the linter finds in torch's own configs is shown to be so by torch itself."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.ao.quantization import QConfigMapping, backend_config, default_qat_qconfig, default_qconfig
from torch.ao.quantization.quantize_fx import prepare_fx, prepare_qat_fx

from conformance.lint.linter import Problem, declared, lint

CONFIGS: dict[str, Callable[[], backend_config.BackendConfig]] = {
    "native": backend_config.get_native_backend_config,
    "fbgemm": backend_config.get_fbgemm_backend_config,
    "qnnpack": backend_config.get_qnnpack_backend_config,
    "onednn": backend_config.get_onednn_backend_config,
    "executorch": backend_config.get_executorch_backend_config,
    "tensorrt": backend_config.get_tensorrt_backend_config,
}


def of(name: str) -> list[Problem]:
    return lint(declared(name, CONFIGS[name]().configs))


class Calling(nn.Module):
    """A linear layer and a function."""

    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.linear, self.function = nn.Linear(3, 4), function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self.linear(x))


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], bool]] = {
    **{
        f"nn.ConvTranspose{n}d+nn.BatchNorm{n}d": (
            lambda n=n: nn.Sequential(getattr(nn, f"ConvTranspose{n}d")(2, 3, 2), getattr(nn, f"BatchNorm{n}d")(3)),  # type: ignore[misc]
            (2, 2, *[4] * n),
            True,
        )
        for n in (1, 2, 3)
    },
    "nn.Linear+F.leaky_relu": (lambda: Calling(nn.functional.leaky_relu), (2, 3), False),
    "nn.Linear+torch.tanh": (lambda: Calling(torch.tanh), (2, 3), False),
    "nn.Linear+nn.BatchNorm1d+nn.LeakyReLU": (
        lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.LeakyReLU()),
        (2, 3),
        True,
    ),
}
"""A model with a pattern, the shape of its input, and whether it is trained."""


@pytest.mark.parametrize("name", CONFIGS)
def test_a_fuser_that_raises_fails_the_preparation_of_a_model(name: str) -> None:
    for problem in of(name):
        if problem.rule.id == "fuser-raises":
            make, shape, trained = MODELS[problem.where.partition(", ")[2]]
            prepare, qconfig = (prepare_qat_fx, default_qat_qconfig) if trained else (prepare_fx, default_qconfig)
            with pytest.raises(Exception, match=r"not yet supported|Cannot fuse|Incorrect types"):
                prepare(
                    make().train(trained),
                    QConfigMapping().set_global(qconfig),
                    (torch.ones(shape),),
                    backend_config=CONFIGS[name](),
                )


@pytest.mark.parametrize("name", CONFIGS)
def test_a_method_that_is_unknown_is_no_method_of_tensors(name: str) -> None:
    for problem in of(name):
        if problem.rule.id == "method-unknown":
            method = problem.where.rpartition("Tensor.")[2]
            assert not callable(getattr(torch.Tensor, method, None))
            if hasattr(torch.Tensor, method):
                graph = torch.fx.symbolic_trace(Calling(lambda x, name=method: getattr(x, name))).graph  # type: ignore[misc]
                assert [node.target for node in graph.nodes if node.op.startswith("call_")] == ["linear", getattr]


@pytest.mark.parametrize("name", CONFIGS)
def test_activations_without_observers_are_not_observed(name: str) -> None:
    patterns = {
        problem.where.rpartition(", ")[2] for problem in of(name) if problem.rule.id == "unobserved-activations"
    }
    assert patterns <= {"Tensor.size", "Tensor.shape"}
    model = Calling(lambda x: x.size()).eval()
    prepared = prepare_fx(
        model, QConfigMapping().set_global(default_qconfig), (torch.ones(2, 3),), backend_config=CONFIGS[name]()
    )
    (size,) = (node for node in prepared.graph.nodes if node.target == "size")
    assert not [user for user in size.users if user.op == "call_module"]


@pytest.mark.parametrize("name", CONFIGS)
def test_nothing_else_is_found(name: str) -> None:
    assert {problem.rule.id for problem in of(name)} <= {"fuser-raises", "method-unknown", "unobserved-activations"}
    assert len([problem for problem in of(name) if problem.rule.id == "fuser-raises"]) == FUSERS[name]


FUSERS = {"native": 3, "fbgemm": 3, "qnnpack": 3, "onednn": 6, "executorch": 0, "tensorrt": 3}

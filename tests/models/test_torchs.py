"""torch.ao's functions return what they return without shortcuts, and repeat less."""

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.ao.quantization.fx import quantize_handler

from conformance.cases.claims import backend
from conformance.cases.runs import runs
from conformance.configs.registry import BACKENDS
from conformance.models import build, fx, torchs
from conformance.shortcuts import without


def test_constructors_know_the_device_of_a_module() -> None:
    asked: list[object] = []

    class Layer(torch.nn.Linear):
        def parameters(self, recurse: bool = True) -> Any:
            asked.append(recurse)
            return super().parameters(recurse)

    qconfig, layer = torch.ao.quantization.get_default_qconfig("fbgemm"), Layer(2, 2)  # type: ignore[no-untyped-call]
    placed = torchs.qconfig._add_module_to_qconfig_obs_ctr(qconfig, layer)
    searches = len(asked)
    observers = [placed.activation(), placed.activation(), placed.weight()]
    assert len(asked) == searches
    assert observers[0] is not observers[1]
    with without("copies"):
        own = torchs.qconfig._add_module_to_qconfig_obs_ctr(qconfig, layer)
        expected = [own.activation(), own.activation(), own.weight()]
    assert len(asked) > searches
    assert list(map(str, observers)) == list(map(str, expected))
    assert qconfig.activation.callable_args == {}


def test_runs_with_one_recipe_have_one_qconfig() -> None:
    run = next(runs(backend("fbgemm"), ["x86"]))
    first, second = (build.subject(run) for _ in range(2))
    assert first.qconfig is second.qconfig
    assert first.mapping is not second.mapping
    with without("copies"):
        assert build.subject(run).qconfig is not first.qconfig


@pytest.mark.parametrize("name", [name for name in BACKENDS if name != "executorch"])
def test_tables_are_derived_before_they_are_asked_for(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = copy.copy(backend(name).config)  # of which no table is kept
    torchs.derive_tables(config)
    asked: list[object] = []
    monkeypatch.setattr(type(config), "configs", property(lambda self: asked.append(self)), raising=False)
    for owner, function in torchs.TABLES:
        getattr(owner, function)(config)
    assert not asked


def test_configs_that_differ_in_one_entry_share_the_handlers_of_the_others() -> None:
    config = copy.copy(backend("fbgemm").config)  # of which no table is kept
    fewer = torch.ao.quantization.backend_config.BackendConfig("fewer").set_backend_pattern_configs(config.configs[1:])
    handlers, others = (quantize_handler._get_pattern_to_quantize_handlers(each).values() for each in (config, fewer))
    assert {*others} < {*handlers}
    with without("tables"):
        own = quantize_handler._get_pattern_to_quantize_handlers(config).values()
    assert not {*own} & {*handlers}


def test_a_config_without_tables_is_left_to_its_runs() -> None:
    asked: list[object] = []

    class Raises(torch.ao.quantization.backend_config.BackendConfig):
        configs = property(lambda self: asked.append(self) or 1 / 0)  # type: ignore[func-returns-value]

    torchs.derive_tables(Raises("raises"))
    assert asked


def test_a_torch_without_the_option_about_stacks_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.fx.config.do_not_emit_stack_traces
    with fx._without_stack_traces():
        assert torch.fx.config.do_not_emit_stack_traces
    assert torch.fx.config.do_not_emit_stack_traces == before
    monkeypatch.setattr(torch.fx, "config", SimpleNamespace())  # as in torch 2.10
    with fx._without_stack_traces():
        assert vars(torch.fx.config) == {}

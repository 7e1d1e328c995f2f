"""The workflows of torchao are those of the installed version, as far as it is installed."""

import fnmatch
import importlib.util
from collections import Counter

import pytest
import torch

from conformance.cases.claims import backend
from conformance.cases.runs import runs
from conformance.configs.torchao import (
    ACCELERATOR,
    ARM,
    BLACKWELL,
    MARKS,
    MSLK,
    OWN_KERNELS,
    PROTOTYPES,
    get_torchao_workflows,
)
from conformance.configs.workflows import Workflow

WORKFLOWS = get_torchao_workflows()
installed = pytest.mark.skipif(importlib.util.find_spec("torchao") is None, reason="torchao is not installed")
NO_WORKFLOW = {
    "AOPerModuleConfig": "applies others to modules by name",
    "Float8MMConfig": "an option of others",
    "Float8StaticActivationFloat8WeightConfig": "a prototype",
    "FqnToConfig": "applies others to modules by name",
    "ModuleFqnToConfig": "its earlier name",
}
"""Configs that `torchao.quantization` exports and that are no workflows, with the reason."""


def test_claims_have_names_of_their_own_and_every_one_has_runs() -> None:
    claims = backend("torchao").claims
    assert len({claim.id for claim in claims}) == len(claims) == 601
    assert {run.claim for run in runs(backend("torchao"))} == {*claims}
    assert Counter(entry.needs for entry in WORKFLOWS.workflows) == {
        "": 201,
        BLACKWELL: 2,
        MSLK: 4,
        ACCELERATOR: 4,
        ARM: 4,
        OWN_KERNELS: 2,
    }


@installed
def test_every_exported_config_is_a_workflow_or_has_a_reason() -> None:
    import torchao.quantization

    exported = {name for name in torchao.quantization.__all__ if name.endswith("Config")}
    named = {entry.source.partition("(")[0] for entry in WORKFLOWS.workflows} - set(PROTOTYPES)
    assert exported == named | NO_WORKFLOW.keys()


@installed
def test_kernels_that_torchao_lacks_are_not_built_in() -> None:
    import torchao  # noqa: F401

    has = torch._C._dispatch_has_kernel_for_dispatch_key
    built = has("torchao::da8w4_linear_cpu", "CPU") if hasattr(torch.ops.torchao, "da8w4_linear_cpu") else False
    assert not built, "torchao has its kernels for the CPU: its claims need nothing"


@installed
@pytest.mark.parametrize("entry", WORKFLOWS.workflows, ids=lambda entry: entry.name)
def test_every_expression_makes_a_config(entry: Workflow) -> None:
    config = eval(entry.source, WORKFLOWS.namespace())
    assert type(config).__name__ == entry.source.partition("(")[0]
    dtype = getattr(config, "weight_dtype", None)
    if dtype not in (None, torch.int8, torch.float8_e4m3fn) and not entry.weight.dtype:
        bits = int(str(dtype).removeprefix("torch.int"))
        assert (entry.weight.low, entry.weight.high) == (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def test_every_mark_is_of_a_workflow() -> None:
    sources = [entry.source for entry in WORKFLOWS.workflows]
    assert [glob for glob in MARKS if not fnmatch.filter(sources, glob)] == []

"""A single case answers soon: nothing is loaded or listed that it does not need."""

import subprocess
import sys
from pathlib import Path

import pytest
from invoking import ROOT

from conformance.cases.claims import backend
from conformance.cases.runs import Run, candidates, select
from conformance.configs.registry import BACKENDS
from conformance.errors import UsageError

DEVIATING = "qnnpack/torch.add/static-quint8/ptq/alpha_2/exact@qnnpack"

REFUSE = """\
import os, sys
import torch
import torch.fx.config

parent = os.getpid()
heavy = {"hypothesis", "sympy", "conformance.fuzz"}
if hasattr(torch.fx.config, "do_not_emit_stack_traces"):  # older versions load their compiler with the first trace
    heavy |= {"torch._dynamo", "torch._inductor"}

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name in heavy:
            sys.__stderr__.write(f"loads {name} {'here' if os.getpid() == parent else 'in a child'}\\n")
            sys.__stderr__.flush()

sys.meta_path.insert(0, Refuse())
"""
"""Reports the import of a module that takes long, in a process and in those that it forks."""


def loaded(code: str) -> tuple[str, list[str]]:
    """The output of a process that runs `code`, and its reports."""
    done = subprocess.run(
        [sys.executable, "-c", f"{REFUSE}\n{code}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout, [line for line in done.stderr.splitlines() if line.startswith("loads ")]


@pytest.mark.parametrize(("command", "shown"), [("show", "== checks"), ("repro", "import torch")])
def test_commands_load_neither_compiler_nor_hypothesis(command: str, shown: str) -> None:
    output, reports = loaded(f"from conformance.__main__ import main; main([{command!r}, {DEVIATING!r}])")
    assert shown in output
    assert reports == []


def test_a_selected_case_loads_neither_compiler_nor_hypothesis(tmp_path: Path) -> None:
    options = ["conformance", "-q", "-p", "no:cacheprovider", "--results", str(tmp_path / "rows.jsonl")]
    output, reports = loaded(f"import pytest; pytest.main({[*options, '--case', DEVIATING]})")
    assert "1 xfailed" in output
    assert reports == []


def test_globs_list_only_runs_of_claims_that_they_can_match() -> None:
    backends = [backend(name) for name in BACKENDS]
    listed = candidates(backends, globs=[DEVIATING, "fbgemm/nn.Linear/*@x86"])
    assert {(run.claim.backend, run.claim.pattern) for run in listed} == {
        ("qnnpack", "torch.add"),
        ("fbgemm", "nn.Linear"),
    }
    assert len({run.claim for run in listed if run.backend.name == "qnnpack"}) == 1


@pytest.mark.parametrize(
    "glob",
    [DEVIATING, "fbgemm/nn.Linear/*", "fbgemm/nn.Lin*/static-*@x86", "*/nn.ReLU/*", "[fo]*/torch.add/*", "*"],
)
def test_the_runs_of_a_glob_are_those_that_it_matches_among_all(glob: str) -> None:
    backends = [backend("qnnpack"), backend("fbgemm")]
    assert ids(select(candidates(backends, globs=[glob]), [glob])) == ids(select(candidates(backends), [glob]))


def test_a_glob_that_matches_nothing_gets_the_nearest_of_all_ids() -> None:
    backends = [backend("qnnpack"), backend("fbgemm")]
    wrong = "fbgemm/nn.Linearr/static-quint8/ptq/default/exact@x86"
    with pytest.raises(UsageError, match=r"did you mean fbgemm/nn.Linear/static-quint8/ptq/default"):
        select(candidates(backends, globs=[DEVIATING, wrong]), [DEVIATING, wrong])


def ids(runs: list[Run]) -> list[str]:
    return [run.id for run in runs]

"""The committed lists of runs are those that configs, operators and profiles give."""

from pathlib import Path

import pytest

from conformance.cases.claims import backend
from conformance.cases.listing import lines
from conformance.cases.runs import runs
from conformance.configs.registry import REGISTERED


@pytest.mark.parametrize("name", REGISTERED)
def test_the_committed_list_has_every_run(name: str) -> None:
    committed = (Path(__file__).parent / "runs" / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    listed = [*lines(backend(name))]
    changed = sorted({*committed} ^ {*listed})
    assert committed == listed, (
        f"{len(changed)} lines differ, first {changed[:1]}: "
        f"python -m conformance claims --backend {name} --runs > tests/cases/runs/{name}.txt"
    )


def test_ids_are_made_of_the_parts_of_a_line() -> None:
    made = set()
    for line in lines(backend("onednn")):
        head, _, names = line.partition(": ")
        start, _, rest = head.rpartition(" ")
        profile, _, engines = rest.partition("@")
        made |= {f"{start}/{name}/{profile}@{engine}" for name in names.split() for engine in engines.split(",")}
    assert made == {run.id for run in runs(backend("onednn"))}

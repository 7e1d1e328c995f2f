"""Engines run what they are made for: converted models, or modules that are quantized in place."""

import pytest

from conformance.cases.claims import backend
from conformance.cases.runs import benchmarks, runs
from conformance.commands.runs import possible
from conformance.errors import UsageError

REFUSED = {
    "fbgemm": ("torch-eager", "choose from fbgemm, x86, which run what fbgemm declares"),
    "xnnpack": ("torch-compiled", "choose from executorch, which run what xnnpack declares"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_engine_of_other_models_is_refused(name: str) -> None:
    engine, choice = REFUSED[name]
    with pytest.raises(UsageError, match=f"^unknown engine '{engine}': {choice}$"):
        next(runs(backend(name), [engine]))


def test_benchmarks_refuse_such_an_engine_too() -> None:
    with pytest.raises(UsageError, match="unknown engine 'torch-eager'"):
        next(benchmarks(backend("fbgemm"), ["torch-eager"]))


@pytest.mark.parametrize(("engine", "backend_there"), [("x86", "fbgemm"), ("torch-eager", "torchao")])
def test_a_glob_over_backends_takes_those_that_the_engine_runs(engine: str, backend_there: str) -> None:
    found = {run.backend.name for run in possible(f"*/nn.Linear/*/ptq/default/exact@{engine}", None, None)}
    assert found & {"fbgemm", "torchao"} == {backend_there}

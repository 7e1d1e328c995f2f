"""The population: layers of networks that claims cover, and the calls that their engines make."""

from itertools import islice
from math import prod
from random import Random

import pytest

from conformance.cases.claims import backend
from conformance.execution import batch
from conformance.fuzz.samples import Sample, run_of
from conformance.results import in_use
from conformance.results.in_use import LayerInUse

from .parallel import results_of
from .population import MOST_ELEMENTS, Seen, calls_of, layers_of, threads_of

CORPUS = in_use.read()


def layers(key: str, count: int, corpus: list[LayerInUse] = CORPUS) -> list[Sample]:
    return [*islice(layers_of(backend("fbgemm"), "x86", corpus, Random(key)), count)]


def test_the_same_key_gives_the_same_layers() -> None:
    assert layers("a", 20) == layers("a", 20)
    assert layers("a", 20) != layers("b", 20)


def test_layers_are_of_claims_and_not_too_large() -> None:
    ids = {claim.id for claim in backend("fbgemm").claims}
    for sample in layers("a", 200):
        assert sample.claim in ids
        assert all(prod(spec.shape) <= MOST_ELEMENTS for spec in sample.variant.operands.values())


def test_frequent_layers_are_more_likely() -> None:
    often = {layer.pattern for layer in CORPUS[:1]}
    same = [layer for layer in CORPUS if layer.pattern in often and "3x64x64" in layer.inputs[0]][:1]
    rare = [layer for layer in CORPUS if layer.occurrences == 1 and layer.pattern in often][:20]
    first = [layers(str(number), 1, [*rare, *same])[0].variant.operands["x"].shape for number in range(30)]
    assert first.count((2, 3, 64, 64)) > 5


@pytest.fixture(scope="module")
def seen() -> list[list[Seen]]:
    batch.warm_up()
    runs = [run_of(backend("fbgemm"), sample) for sample in layers("calls", 6)]
    return results_of(calls_of, runs, "calls")


def test_every_layer_makes_calls_of_its_engine(seen: list[list[Seen]]) -> None:
    assert all(any("quantized" in call.kernel or call.codes for call in calls) for calls in seen)
    assert all(call.kind in ("codes", "floats") for calls in seen for call in calls)


def test_a_call_has_codes_of_its_result(seen: list[list[Seen]]) -> None:
    codes = [call for calls in seen for call in calls if call.kind == "codes"]
    assert codes
    assert all(call.codes and all(-128 <= code <= 255 for code in call.codes) for call in codes)


def test_a_quarter_of_the_population_runs_on_several_threads() -> None:
    assert [threads_of(number) for number in range(0, 20, 4)] == [2, 3, 4, 7, 2]
    assert {threads_of(number) for number in range(20) if number % 4} == {1}

"""Diagnostics are read back, bounded, and refused if they are damaged or belong to other rows."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest
import torch
from invocation import details_of, offsets, row, write
from torch import nn
from torch.fx import Graph, GraphModule

from conformance.errors import UsageError
from conformance.execution.diagnose import described, graphs
from conformance.execution.diagnose import offsets as measured
from conformance.goldens.golden import Expected
from conformance.models.trace import Output
from conformance.results.diagnostics import MOST_POSITIONS, NO_MATCH, Offsets, path_beside, read, schema
from conformance.results.rows import read_all

ROWS = [row("nn.ReLU"), row("nn.Linear", fails=["numerics"])]
DETAILS = [details_of(ROWS[0]), details_of(ROWS[1], offsets(0, 2, -1))]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    written: Path = write(tmp_path / "rows.jsonl", ROWS, details=DETAILS)
    return written


def lines(path: Path) -> list[str]:
    return gzip.decompress(path_beside(path).read_bytes()).decode().splitlines(keepends=True)


def test_diagnostics_are_read_back(path: Path) -> None:
    assert read(path, read_all(path)) == [{details.id: details for details in DETAILS}]


def test_the_same_details_make_the_same_bytes(path: Path, tmp_path: Path) -> None:
    reversed_file = write(tmp_path / "other.jsonl", ROWS, details=DETAILS[::-1])
    assert path_beside(path).read_bytes() == path_beside(reversed_file).read_bytes()


def test_rows_without_details_have_none(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", ROWS)
    assert read(path, read_all(path)) == [{}]


def test_every_line_keeps_to_the_schema(path: Path) -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    for line in lines(path):
        jsonschema.validate(json.loads(line), schema())


def test_details_of_other_rows_are_refused(path: Path) -> None:
    write(path, ROWS[:1])
    with pytest.raises(UsageError, match=r"rows\.details\.jsonl\.gz: belongs to other rows .*run it again, or remove"):
        read(path, read_all(path))


DAMAGES: dict[str, tuple[Callable[[list[str]], list[str]], str]] = {
    "empty": (lambda lines: [], "empty"),
    "no header": (lambda lines: lines[1:], "has no header"),
    "no footer": (lambda lines: lines[:-1], "truncated"),
    "a run is lost": (lambda lines: [lines[0], *lines[2:]], "the footer counts 2 runs, there are 1"),
    "a newer schema": (
        lambda lines: [lines[0].replace('"schema":1', '"schema":2'), *lines[1:]],
        "schema 2; this version reads",
    ),
    "cut within a line": (lambda lines: [*lines[:2], lines[2][:30] + "\n", lines[3]], "damaged"),
    "a field of another type": (
        lambda lines: [line.replace('"total":8', '"total":"8"') for line in lines],
        "outputs: total: '8' is not a count",
    ),
    "an unknown field": (
        lambda lines: [line.replace('"sections"', '"parts"') for line in lines],
        "unknown field parts",
    ),
    "a run twice": (lambda lines: [*lines[:2], *lines[1:]], "duplicate run fbgemm/"),
    "rows": (lambda lines: ['{"kind": "header", "schema": 2, "engines": {}}'], "its header has no rows"),
    "a run of no row": (
        lambda lines: [line.replace("nn.ReLU/", "nn.ReLU6/") for line in lines],
        "of which there is no row",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_one_error_that_names_it(damage: str, path: Path) -> None:
    change, message = DAMAGES[damage]
    path_beside(path).write_bytes(gzip.compress("".join(change(lines(path))).encode()))
    with pytest.raises(UsageError) as raised:
        read(path, read_all(path))
    assert str(path_beside(path)) in str(raised.value)
    assert message in str(raised.value)


@pytest.mark.parametrize("kept", [0.0, 0.5])
def test_a_file_that_is_cut_is_one_error_that_names_it(kept: float, path: Path) -> None:
    whole = path_beside(path).read_bytes()
    path_beside(path).write_bytes(whole[: int(kept * len(whole))])
    with pytest.raises(UsageError, match=r"rows\.details\.jsonl\.gz: (damaged or truncated|empty)"):
        read(path, read_all(path))


def quantized(codes: list[int], scale: float = 0.5, zero_point: int = 3) -> Output:
    q = torch._make_per_tensor_quantized_tensor(torch.tensor(codes, dtype=torch.uint8), scale, zero_point)
    return Output(q.dequantize(), q)


def golden(low: list[int], high: list[int] | None = None, scale: float = 0.5) -> Expected:
    first, last = (torch.tensor(codes, dtype=torch.uint8) for codes in (low, high or low))
    return Expected(first, last, scale, 3, "quint8")


class Mute(nn.Identity):
    """A module that has to ask its engine to describe itself."""

    def extra_repr(self) -> str:
        raise RuntimeError("only supports conv2d_unpack right now")


def test_a_module_that_cannot_describe_itself_is_named() -> None:
    graph = Graph()
    graph.output(graph.call_module("layer", (graph.placeholder("x"),)))
    text = graphs(lowered=GraphModule(nn.ModuleDict({"layer": Mute()}), graph))["lowered model"]
    assert "layer: Mute, which cannot describe itself: RuntimeError: only supports conv2d_unpack right now" in text


def test_an_output_that_is_quantized_per_channel_is_described() -> None:
    per_channel = torch.quantize_per_channel(
        torch.ones(2, 3), torch.tensor([0.5, 1.0]), torch.tensor([0, 1]), 0, torch.qint8
    )
    assert described(Output(per_channel.dequantize(), per_channel)) == "qint8 (2, 3) per_channel_affine"


def test_offsets_are_in_steps_and_ties_are_marked() -> None:
    difference = measured(quantized([10, 13, 20, 31]), golden([10, 10, 20, 30], [10, 10, 20, 31]))
    assert (difference.unit, difference.total, difference.differing) == ("steps", 4, 2)
    assert (difference.positions, difference.offsets, difference.ties) == ((1, 3), (3, 1), (3,))
    assert difference.histogram == ((1, 1), (3, 1))
    assert difference.complete


def test_equal_codes_have_no_offsets_at_any_scale() -> None:
    assert measured(quantized([1, 250], 0.0123), golden([1, 250], scale=0.0123)).differing == 0


def test_codes_of_another_scale_are_measured_in_the_goldens_steps() -> None:
    assert measured(quantized([5], 1.0), golden([3])).offsets == (4,)


def test_hashes_of_codes_distinguish_outputs() -> None:
    first, second = measured(quantized([1, 2]), golden([1, 2])), measured(quantized([1, 3]), golden([1, 2]))
    assert first.golden == second.golden
    assert first.codes != second.codes


def test_positions_are_bounded_and_the_furthest_are_kept() -> None:
    steps = [*range(1, 101)] * 50
    difference = measured(quantized(steps), golden([0] * len(steps)))
    assert len(difference.positions) == MOST_POSITIONS < difference.differing == 5000
    assert not difference.complete
    assert min(difference.offsets) == 80
    assert sum(count for _, count in difference.histogram) == 5000


def test_float_outputs_are_measured_in_values_and_nan_is_far_off() -> None:
    expected = Expected(torch.zeros(3), torch.zeros(3))
    difference = measured(Output(torch.tensor([0.0, 0.25, float("nan")])), expected)
    assert (difference.unit, difference.positions) == ("values", (1, 2))
    assert difference.offsets[1] > 1e38


def test_another_shape_matches_nothing() -> None:
    difference = measured(quantized([1, 2]), golden([1]))
    assert (difference.unit, difference.differing, difference.positions) == (NO_MATCH, 1, ())
    assert isinstance(difference, Offsets)

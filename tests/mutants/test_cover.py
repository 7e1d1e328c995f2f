"""The report of cover: classes of calls, and which of them hang on too few runs."""

from collections import Counter
from typing import Any

import pytest
import torch
from faults.kernels import Call

from .cover import CONSTANT, Counts, classes, document, is_thin, recording
from .facts import Fact

FACTS: dict[str, Fact] = {"qx size(1)": 67, "stride": "2x2", "groups": 3, "qx format": "channels_last", "call": 1}


def test_classes_are_values_of_options_remainders_bounds_formats_and_data() -> None:
    found = {*classes("quantized.conv2d.new", FACTS, CONSTANT)}
    bounds = {f"qx size(1) is at least {bound + 1}" for bound in (4, 8, 16, 32, 64)}
    assert found == {"qx size(1) % 8 is 3", *bounds, "stride 2x2", "groups 3", "qx format channels_last", CONSTANT}


def test_a_call_that_raises_meets_no_class() -> None:
    def made(kernel: Any) -> Call:
        return Call(torch.ops.aten.relu.default._schema, {"self": torch.ones(2)}, kernel)

    def refuse(*_: object) -> None:
        raise RuntimeError("refused")

    found = set[tuple[str, str]]()
    with pytest.raises(RuntimeError):
        recording(found)("aten.relu", made(refuse), 1)
    assert not found
    recording(found)("aten.relu", made(torch.relu), 1)
    assert ("aten.relu", "self elements % 8 is 2") in found


def test_a_class_is_thin_with_few_runs_or_one_profile() -> None:
    assert is_thin(Counter())
    assert is_thin(Counter(exact=1, pairs=1))
    assert is_thin(Counter(exact=9))
    assert not is_thin(Counter(exact=2, pairs=1))


def test_the_page_lists_thin_classes_of_each_engine() -> None:
    counts, needed = Counts(), frozenset({("aten.relu", "threads 2"), ("aten.relu", CONSTANT)})
    counts.by_engine["x86"]["aten.relu", "threads 2"].update(exact=2, pairs=2)
    page = document({"x86": needed}, counts)
    assert "| x86 | 1 | 2 | 2 | 0 | 1 |" in page
    assert f"| aten.relu | {CONSTANT} | 0 | 0 |" in page
    assert "| threads 2 |" not in page

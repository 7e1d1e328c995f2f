"""Calls in source text are parsed and rewritten argument by argument; a replacement that hits nothing is an error."""

import re

import pytest

from conformance.cases.operators import OPERATORS, RECORDS
from conformance.cases.operators.expressions import Call, with_numbers
from conformance.cases.operators.fused import WITHOUT_RELU, init_without_relu, plain_of, wrapped


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_parsed_call_renders_as_it_is_written(operator: str) -> None:
    for variant in OPERATORS[operator]:
        for source in filter(None, (variant.init, variant.call)):
            if not re.search(r" [-+*/]+ ", source):
                assert Call.parse(source).source == source


@pytest.mark.parametrize("source", ["x + y", "x", "[f(x)]", "f(x).y"])
def test_only_calls_are_parsed(source: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"{source!r} is not a call")):
        Call.parse(source)


def test_arguments_are_replaced_by_position_and_keyword_and_new_keywords_come_first() -> None:
    call = Call.parse("nn.Conv2d(4, 8, 3, padding=1, qconfig=qconfig)")
    changed = call.with_arguments({0: 35, 2: (3, 1), "groups": 7, "padding": "same"})
    assert changed.source == "nn.Conv2d(35, 8, (3, 1), groups=7, padding='same', qconfig=qconfig)"


def test_a_position_that_a_call_lacks_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"'nn\.ReLU\(\)' has no positional argument 0"):
        Call.parse("nn.ReLU()").with_arguments({0: 4})


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_operator_has_larger_sizes(operator: str) -> None:
    record = RECORDS[plain_of(operator)]
    assert wrapped(record.enlarged(), operator).operands["x"].shape != OPERATORS[operator][0].operands["x"].shape
    timed = record.timed()
    assert len({variant.name for _, variant in timed}) == len(timed) > 1


def test_numbers_are_replaced_from_left_to_right_with_their_signs_and_without_indices() -> None:
    numbers: list[int | float] = []

    def double(number: int | float) -> int | float:
        numbers.append(number)
        return 2 * number

    source = "F.pad(x, (1, -2), value=0.5).reshape(x.shape[0], 20, mode='nearest2', keepdim=True)"
    doubled = "F.pad(x, (2, -4), value=1.0).reshape(x.shape[0], 40, mode='nearest2', keepdim=True)"
    assert with_numbers(source, double) == doubled
    assert numbers == [1, -2, 0.5, 20]
    assert with_numbers("", double) == ""


@pytest.mark.parametrize(
    ("operator", "init", "expected"),
    [
        ("nni.ConvReLU2d", "nni.ConvReLU2d(nn.Conv2d(4, 8, 3, groups=2), nn.ReLU())", "nn.Conv2d(4, 8, 3, groups=2)"),
        ("nni.BNReLU3d", "nni.BNReLU3d(nn.BatchNorm3d(4), nn.ReLU())", "nn.BatchNorm3d(4)"),
        (
            "nni.ConvBnReLU1d",
            "nni.ConvBnReLU1d(nn.Conv1d(4, 8, 3), nn.BatchNorm1d(8), nn.ReLU())",
            "nni.ConvBn1d(nn.Conv1d(4, 8, 3), nn.BatchNorm1d(8))",
        ),
        (
            "nni.ConvAddReLU2d",
            "nni.ConvAddReLU2d(nn.Conv2d(4, 8, 3), torch.add, nn.ReLU())",
            "nni.ConvAdd2d(nn.Conv2d(4, 8, 3), torch.add)",
        ),
        ("nniqat.ConvReLU1d", "nniqat.ConvReLU1d(4, 8, 3, qconfig=qconfig)", "nnqat.Conv1d(4, 8, 3, qconfig=qconfig)"),
        ("nniqat.ConvBnReLU2d", "nniqat.ConvBnReLU2d(4, 8, 3, qconfig=qconfig)", "nniqat.ConvBn2d(4, 8, 3, qconfig=qconfig)"),
        ("nniqat.LinearReLU", "nniqat.LinearReLU(16, 8, qconfig=qconfig)", "nnqat.Linear(16, 8, qconfig=qconfig)"),
    ],
)  # fmt: skip
def test_a_fused_module_is_written_without_its_relu(operator: str, init: str, expected: str) -> None:
    assert init_without_relu(operator, init) == expected


def test_only_the_module_itself_is_written_without_its_relu() -> None:
    with pytest.raises(ValueError, match=r"'nn\.Conv2d\(4, 8, 3\)' does not construct nni\.ConvReLU2d"):
        init_without_relu("nni.ConvReLU2d", "nn.Conv2d(4, 8, 3)")


def test_every_fused_or_qat_module_that_ends_in_a_relu_has_a_counterpart_without_it() -> None:
    assert {*WITHOUT_RELU} == {name for name in OPERATORS if name.startswith("nni") and "ReLU" in name} - {
        "nni.LinearLeakyReLU"
    }
    assert {*WITHOUT_RELU.values()} <= {*OPERATORS}

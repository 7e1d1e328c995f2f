"""Calls keep the values of which they are rendered; text that is stated has the values, too."""

import pickle

import pytest

from conformance.cases.operators import OPERATORS, RECORDS
from conformance.cases.operators.expressions import Call, Source, expression
from conformance.cases.operators.fused import WITHOUT_RELU, init_without_relu, plain_of, wrapped


@pytest.mark.parametrize("operator", OPERATORS)
def test_text_has_the_values_of_which_it_was_rendered(operator: str) -> None:
    for variant in OPERATORS[operator]:
        for call in filter(None, (variant.init, variant.call)):
            assert isinstance(call, Call)
            stated = expression(str(call))
            assert isinstance(stated, Call)
            assert (stated, stated.function) == (call, call.function)
            assert (*stated.positional,) == (*call.positional,)
            assert dict(stated.keywords) == dict(call.keywords)
            assert stated.has_numbers is call.has_numbers


@pytest.mark.parametrize("text", ["x", "[f(x)]", "f(x).y", "f(x", ""])
def test_what_is_no_call_stays_text(text: str) -> None:
    stated = expression(text)
    assert stated == text
    assert not isinstance(stated, Call)


def test_a_call_stays_as_somebody_spells_it() -> None:
    stated = pickle.loads(pickle.dumps(expression("f( (x + 1) * 2,mode='sum' )")))
    assert isinstance(stated, Call)
    assert stated == "f( (x + 1) * 2,mode='sum' )"
    assert (stated.positional, stated.keywords) == (("(x + 1) * 2",), {"mode": "sum"})


def test_arguments_are_values_and_other_expressions() -> None:
    call = expression("nn.Conv2d(4, 8, (3, -1), padding='same', bias=None, qconfig=qconfig)")
    assert isinstance(call, Call)
    assert call.function == "nn.Conv2d"
    assert call.positional == (4, 8, (3, -1))
    assert call.keywords == {"padding": "same", "bias": None, "qconfig": "qconfig"}
    assert isinstance(call.keywords["qconfig"], Source)
    assert not isinstance(call.keywords["padding"], Source)


def test_a_call_is_copied_between_processes_with_its_arguments() -> None:
    call = pickle.loads(pickle.dumps(Call("f", (Source("x"), 2), {"mode": "sum"})))
    assert (call, call.positional, call.keywords) == ("f(x, 2, mode='sum')", ("x", 2), {"mode": "sum"})


@pytest.mark.parametrize(
    ("text", "has"),
    [
        ("F.pad(x, (1, -2))", True),
        ("x + 0.5", True),
        ("x + y", False),
        ("x.reshape(x.size(0), y)", True),
        ("x.reshape(x.shape[0], y)", False),
        ("f(x, mode='nearest2', keepdim=True)", False),
    ],
)
def test_numbers_are_arguments_without_indices(text: str, has: bool) -> None:
    call = expression(text)
    assert isinstance(call, Call)
    assert call.has_numbers is has


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_operator_has_larger_sizes(operator: str) -> None:
    record = RECORDS[plain_of(operator)]
    assert wrapped(record.enlarged(), operator).operands["x"].shape != OPERATORS[operator][0].operands["x"].shape
    timed = record.timed()
    assert len({variant.name for _, variant in timed}) == len(timed) > 1


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
    assert init_without_relu(operator, expression(init)) == expected


def test_only_the_module_itself_is_written_without_its_relu() -> None:
    with pytest.raises(ValueError, match=r"'nn\.Conv2d\(4, 8, 3\)' does not construct nni\.ConvReLU2d"):
        init_without_relu("nni.ConvReLU2d", expression("nn.Conv2d(4, 8, 3)"))


def test_every_fused_or_qat_module_that_ends_in_a_relu_has_a_counterpart_without_it() -> None:
    assert {*WITHOUT_RELU} == {name for name in OPERATORS if name.startswith("nni") and "ReLU" in name} - {
        "nni.LinearLeakyReLU"
    }
    assert {*WITHOUT_RELU.values()} <= {*OPERATORS}

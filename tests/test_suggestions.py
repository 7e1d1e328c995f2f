"""An unknown name is answered with the nearest known names."""

import pytest

from conformance.suggestions import did_you_mean, unknown

ENGINES = ("qnnpack", "fbgemm", "onednn", "x86")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fbgem", "unknown engine 'fbgem': did you mean fbgemm? Choose from qnnpack, fbgemm, onednn, x86"),
        ("nope", "unknown engine 'nope': choose from qnnpack, fbgemm, onednn, x86"),
    ],
)
def test_the_error_names_the_nearest_and_all_choices(name: str, message: str) -> None:
    assert str(unknown("engine", name, ENGINES)) == message


def test_the_error_may_name_another_way() -> None:
    assert str(unknown("engine", "nope", ["x86"], ", or use --other")) == (
        "unknown engine 'nope': choose from x86, or use --other"
    )


def test_at_most_three_names_are_suggested_nearest_first() -> None:
    known = [f"linear_{number}" for number in range(9)]
    assert did_you_mean("linear_7", known).startswith("did you mean linear_7 or ")
    assert did_you_mean("linear_7", known).count(" or ") == 2


def test_names_below_the_cutoff_are_not_suggested() -> None:
    assert did_you_mean("nn.Relu", ["nn.ReLU"], cutoff=0.9) == ""
    assert did_you_mean("nn.Relu", ["nn.ReLU"], cutoff=0.5) == "did you mean nn.ReLU"

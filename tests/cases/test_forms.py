"""How runs differ from default use, in words."""

import pytest

from conformance.cases.forms import form
from tests.runs_by_id import run


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fbgemm/nn.Conv2d/static-quint8/ptq/default/exact@x86", ""),
        ("fbgemm/nn.Conv2d/static-quint8/ptq/default/typical@x86", ""),
        ("fbgemm/nn.Conv2d/static-quint8/ptq/padding_same/exact@x86", "padding='same'"),
        ("fbgemm/torch.add/static-quint8/ptq/alpha_2/exact@x86", "alpha=2"),
        ("fbgemm/nn.Conv2d/static-quint8/ptq/batch0/exact@x86", "an empty batch"),
        ("fbgemm/nn.MaxPool2d/static-quint8/ptq/keyword/exact@x86", "input by keyword"),
        ("fbgemm/nn.Conv2d/static-quint8/ptq/after_relu/contexts@x86", "after relu"),
        ("fbgemm/nn.Linear/static-quint8/ptq/negative/exact@x86", "negative"),
    ],
)
def test_a_run_is_described_by_what_sets_it_apart_from_default_use(name: str, words: str) -> None:
    assert form(run(name)) == words

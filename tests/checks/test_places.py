"""Where wrong elements of a tensor lie."""

import pytest
import torch

from conformance.checks.places import place_of


def mask(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.bool)


def marked(shape: tuple[int, ...], *index: int | slice | None) -> torch.Tensor:
    wrong = mask(*shape)
    wrong[tuple(slice(None) if one is None else one for one in index)] = True
    return wrong


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (marked((2, 3, 4, 5), None, None, None, 4), "at the last index of dimension 3"),
        (marked((2, 3, 4, 5), None, 1), "at index 1 of dimension 1"),
        (marked((2, 48), None, slice(3, None, 16)), "at every 16th index of dimension 1, from 3 on"),
        (marked((2, 48), None, slice(32, None)), "from index 32 of dimension 1 on"),
        (marked((2, 48), None, slice(0, 32)), "before index 32 of dimension 1"),
        (marked((4, 6), slice(2, None), 5), "from index 2 of dimension 0 on and at the last index of dimension 1"),
        (~mask(2, 3), ""),
    ],
)
def test_parts_of_dimensions(wrong: torch.Tensor, words: str) -> None:
    assert place_of(wrong) == words


def in_memory(shape: tuple[int, ...], *places: int) -> torch.Tensor:
    wrong = mask(*shape)
    wrong.view(-1)[list(places)] = True
    return wrong


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (in_memory((7, 10), *range(64, 70)), "after the last whole vector of 64 elements"),
        (in_memory((70,), *range(64, 70)), "from index 64 of dimension 0 on"),
        (in_memory((7, 10), *range(3, 70, 8)), "at elements 3 modulo 8"),
        (in_memory((4, 10), 1, 5, 12, 18, 3, 19), "before index 2 of dimension 0"),
        (in_memory((4, 10), 20, 21, 37, 38), "from index 2 of dimension 0 on"),
    ],
)
def test_parts_of_memory(wrong: torch.Tensor, words: str) -> None:
    assert place_of(wrong) == words


def test_a_single_element_has_an_index() -> None:
    assert place_of(in_memory((3, 4), 5)) == ""


def test_what_has_no_order_has_no_name() -> None:
    assert place_of(in_memory((3, 4), 0, 2, 4, 5, 7, 9)) == ""

"""Newly allocated memory holds the chosen byte within the scope, and only there."""

import platform

import pytest
import torch

from conformance.host import poison
from conformance.host.isolation import Done, run_isolated
from conformance.host.poison import fresh_memory_holds

GLIBC = platform.libc_ver()[0] == "glibc"


def fresh(value: int) -> set[int]:
    with fresh_memory_holds(value):
        return set(torch.empty(40_000, dtype=torch.uint8).tolist())


@pytest.mark.skipif(not GLIBC, reason="only glibc fills fresh memory")
@pytest.mark.parametrize("value", [0x55, 0xAA, 0x01])
def test_an_unwritten_tensor_holds_the_byte(value: int) -> None:
    assert run_isolated([value], fresh) == [Done({value})]


@pytest.mark.skipif(not GLIBC, reason="only glibc fills fresh memory")
def test_outputs_of_a_kernel_that_reads_unwritten_memory_differ_between_bytes() -> None:
    def unwritten(value: int) -> list[int]:
        with fresh_memory_holds(value):
            result = torch.empty(4_000, dtype=torch.uint8)
            result[:3_999] = 7
            return sorted(set(result.tolist()))

    assert run_isolated([0x55, 0xAA], unwritten) == [Done([7, 0x55]), Done([7, 0xAA])]


@pytest.fixture
def parameters(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    values: list[int] = []
    monkeypatch.setattr(poison, "_mallopt", values.append)
    return values


def test_the_filling_ends_with_the_scope(parameters: list[int]) -> None:
    with fresh_memory_holds(0x55):
        assert parameters == [0xAA]
    assert parameters == [0xAA, 0]


def test_the_filling_ends_when_an_error_leaves_the_scope(parameters: list[int]) -> None:
    with pytest.raises(RuntimeError, match="a kernel"), fresh_memory_holds(0x55):
        raise RuntimeError("a kernel")
    assert parameters[-1] == 0


def test_a_c_library_without_mallopt_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda name: object())
    with fresh_memory_holds(0x55):
        pass

"""The widest instruction set of a host."""

import platform

import pytest

from conformance.host import cpu
from conformance.host.cpu import ISA_LIMITS


@pytest.mark.parametrize(
    ("flags", "widest"),
    [
        (("amx_int8", "amx_tile", "avx2", "avx512_vnni", "avx512f"), "avx512_vnni+amx"),
        (("avx", "avx2", "avx512_vnni", "avx512f"), "avx512_vnni"),
        (("avx2", "avx_vnni"), "avx_vnni"),
        (("avx2", "avx512f"), "avx512f"),
        (("avx", "avx2"), "avx2"),
        (("sse2",), "baseline"),
    ],
)
def test_the_instruction_set_is_the_widest_for_products_of_8_bits(
    flags: tuple[str, ...], widest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "cpu", lambda: ("a CPU", flags))
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    assert cpu.isa(None) == widest


@pytest.mark.parametrize(
    ("flags", "limit", "left"),
    [
        (("amx_int8", "avx2", "avx512_vnni", "avx512f"), "avx512f", "avx512f"),
        (("amx_int8", "avx2", "avx512_vnni", "avx512f"), "avx2", "avx2"),
        (("avx2", "avx_vnni"), "avx512f", "avx2"),
        (("avx2", "avx_vnni"), "avx2", "avx2"),
        (("avx2",), "avx512f", "avx2"),
        (("sse2",), "avx2", "baseline"),
    ],
)
@pytest.mark.parametrize("by_environment", [False, True])
def test_a_limit_leaves_what_the_cpu_has_of_it(
    flags: tuple[str, ...], limit: str, left: str, by_environment: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "cpu", lambda: ("a CPU", flags))
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    if by_environment:
        for name, value in ISA_LIMITS[limit].items():
            monkeypatch.setenv(name, value)
    assert cpu.isa(None if by_environment else limit) == left


@pytest.mark.parametrize("limit", [None, "avx2"])
def test_other_architectures_have_one_instruction_set(limit: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert cpu.isa(limit) == "aarch64"

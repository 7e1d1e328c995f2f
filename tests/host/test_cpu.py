"""The widest instruction set of a host."""

import platform

import pytest

from conformance.host import cpu


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
    assert cpu.isa("avx2") == "avx2"


def test_other_architectures_have_one_instruction_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert cpu.isa(None) == "aarch64"

"""Platforms that a ledger knows, which need not be this one."""

from collections.abc import Iterable

from conformance.errors import UsageError
from conformance.host.cpu import WIDEST_FIRST
from conformance.results.known import Entry, Host

NATIVE_ISA = {"x86_64": "avx512_vnni"}
"""The instruction set of an architecture if none is named; elsewhere it has the name of the architecture."""


def architectures(entries: Iterable[Entry]) -> list[str]:
    """The architectures that entries of a ledger name, in order."""
    named = {entry.when["arch"] for entry in entries if "arch" in entry.when}
    return sorted(named | {platform.partition(" ")[0] for entry in entries for platform in entry.platforms})


def host_of(entries: Iterable[Entry], torch: str, platform: str, isa: str | None) -> Host:
    """A host of an architecture, with an instruction set such as `avx2` or `avx512_vnni+amx`, or None for the usual one.

    Its processor has that instruction set and no more. Raises UsageError for an architecture that no entry names, and for an
    instruction set that the architecture does not have.
    """
    if platform not in (known := architectures(entries)):
        raise UsageError(f"--platform {platform!r}: the ledger knows {', '.join(known)}")
    if platform not in NATIVE_ISA:
        if isa:
            raise UsageError(f"--isa {isa}: {platform} has none that is told apart; leave it out")
        return Host(torch, platform, platform)
    isa = isa or NATIVE_ISA[platform]
    if (name := isa.removesuffix("+amx")) not in WIDEST_FIRST:
        raise UsageError(f"--isa {isa!r}: choose from {', '.join(WIDEST_FIRST)}, or avx512_vnni+amx")
    return Host(torch, platform, isa, (name,))

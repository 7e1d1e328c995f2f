"""Check that kernels stay inside of the memory of tensors."""

from conformance.results.findings.memory import OutOfBounds

from .evidence import Evidence, Outcome, outcome, skip

CHECK = "memory"


def memory(evidence: Evidence) -> Outcome:
    """Neither kernels nor packing of weights read or write outside of the memory of operands and result, on either side."""
    guarded = evidence.guarded
    if guarded is None:
        return skip("not executed")
    if guarded.reason and not guarded.accesses:
        return skip(guarded.reason)
    ordered = sorted(guarded.accesses, key=lambda one: (one[0] or "", one[1]))
    return outcome(OutOfBounds(CHECK, kernel, one.access, one.side, one.bytes) for kernel, one in ordered)

"""Entries of a ledger and a row, as tests of the ledger write them."""

from conformance.results.known import Entry, Host, KnownFinding
from conformance.results.rows import Row
from conformance.results.verdicts import Verdict
from conformance.results.where import Where

HOST = Host(torch="2.13.0+cpu", arch="x86_64", isa="avx512_vnni")
RUN = "fbgemm/nn.Linear/static-quint8/ptq/default/exact@x86"


def where(**fields: str | tuple[str, ...]) -> Where:
    return Where.of(fields)


def entry(
    *wheres: Where,
    exclude: tuple[Where, ...] = (),
    check: str | tuple[str, ...] = "numerics",
    name: str = "an-entry",
    when: dict[str, str] | None = None,
) -> Entry:
    return Entry(
        KnownFinding(name, "Linear is one step off", "it truncates", "unreported"),
        where=wheres or (where(backend="fbgemm", pattern="nn.Linear"),),
        exclude=exclude,
        must=frozenset([check] if isinstance(check, str) else check),
        when=when or {},
        source="known.toml#1",
    )


def row(*failed: str, verdict: str | None = None) -> Row:
    return Row(
        RUN,
        "fbgemm",
        "nn.Linear",
        "static-quint8",
        "ptq",
        "default",
        "exact",
        "x86",
        Verdict(verdict) if verdict else Verdict.of(failed),
        checks={"observed": "pass", "accuracy": "skip", **dict.fromkeys(failed, "fail")},
        detail="numerics: 3 of 32 codes differ",
    )

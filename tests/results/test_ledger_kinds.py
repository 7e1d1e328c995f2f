"""An entry that states kinds of findings covers no others, and one of other platforms demands none."""

from dataclasses import replace
from pathlib import Path

import pytest

from conformance.errors import UsageError
from conformance.results.findings import Finding
from conformance.results.findings.stages import FurtherInputs, FurtherRange, FurtherThreads
from conformance.results.findings.values import CodesDiffer, Element, OutputQparams
from conformance.results.known import Entry, Host, KnownFinding
from conformance.results.ledger import judge
from conformance.results.ledger_file import load
from conformance.results.rows import Row
from conformance.results.verdicts import Verdict
from conformance.results.where import Where

HOST = Host("2.13.0", "x86_64", "avx2")
ID = "fbgemm/nn.Conv2d/static-quint8/ptq/default/exact@x86"
ENTRY = Entry(KnownFinding("an-entry", "", "", ""), (Where(()),), frozenset({"numerics"}), "")


def differing(*findings: Finding) -> Row:
    fields = {
        "backend": "fbgemm",
        "pattern": "nn.Conv2d",
        "dtype_config": "static-quint8",
        "flow": "ptq",
        "variant": "default",
    }
    checks = {"numerics": "fail"}
    return Row(ID, **fields, profile="exact", engine="x86", verdict=Verdict.DEVIATES, checks=checks, findings=findings)  # type: ignore[arg-type]


QPARAMS = OutputQparams("numerics", 0, 0.5, 3, "quint8", 0.25, 3, "quint8")
CODES = CodesDiffer("numerics", 0, 1, 9, 2, (Element((0,), 5.0, 3.0),))
EXECUTED = (
    FurtherInputs("numerics", (("x", (3,)),)),
    FurtherRange("numerics", 37, -4),
    FurtherThreads("numerics", 2),
)


@pytest.mark.parametrize(
    ("findings", "expected"),
    [
        ((QPARAMS,), True),
        (
            (
                QPARAMS,
                FurtherInputs("numerics", (("x", (3,)),)),
                FurtherRange("numerics", 37, -4),
                FurtherThreads("numerics", 2),
            ),
            True,
        ),
        ((QPARAMS, CODES), False),
        ((CODES,), False),
    ],
)
def test_an_entry_covers_findings_of_the_kinds_that_it_states(findings: tuple[Finding, ...], expected: bool) -> None:
    stated = replace(ENTRY, kind=("output-qparams",))
    assert judge(differing(*findings), [stated], HOST).expected is expected
    assert judge(differing(*findings), [ENTRY], HOST).expected


def test_findings_of_another_kind_are_named_as_unlisted() -> None:
    stated = replace(ENTRY, kind=("output-qparams",))
    assert "not in the ledger: numerics" in judge(differing(CODES), [stated], HOST).message


def test_another_entry_may_cover_the_other_kind() -> None:
    stated = replace(ENTRY, kind=("output-qparams",))
    both = [stated, replace(ENTRY, number=2, kind=("codes-differ", "output-qparams"))]
    assert judge(differing(QPARAMS, CODES), both, HOST).expected


def test_an_unknown_kind_of_finding_is_refused(tmp_path: Path) -> None:
    place = '{ where = { flow = "ptq" }, must = "numerics", kind = "code-differ" }'
    finding = '[[finding]]\nid = "one"\ntitle = "It is off"\nreason = "so"\n'
    (tmp_path / "known.toml").write_text(f"{finding}shows = [{place}]\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"known.toml#1, shows 1: unknown kind of finding 'code-differ'"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("platforms", "demanded"),
    [((), True), (("x86_64 avx*", "aarch64 *"), True), (("x86_64 avx512*", "aarch64 *"), False)],
)
def test_an_entry_demands_nothing_on_a_platform_that_its_ledger_was_not_written_on(
    platforms: tuple[str, ...], demanded: bool
) -> None:
    entry = replace(ENTRY, platforms=platforms)
    conforming = replace(differing(), verdict=Verdict.CONFORMS, checks={"numerics": "pass", "memory": "pass"})
    assert judge(conforming, [entry], HOST).expected is not demanded
    assert judge(differing(CODES), [entry], HOST).known == "an-entry"
    undefined = replace(entry, must=frozenset({"undefined"}), undefined="out-of-bounds")
    assert judge(conforming, [undefined], HOST).expected is not demanded

"""Entries whose globs are compiled together cover the runs that each of them matches."""

import pytest

from conformance.results.known import Coverage, Entry, KnownFinding

ID = "fbgemm/nn.Linear/static-quint8/ptq/default/exact@x86"
IDS = (
    ID,
    ID.replace("exact", "laws"),
    ID.replace("fbgemm/", "xnnpack/"),
    ID.replace("default", "channels_16x16"),
    ID.replace("nn.Linear", "operator.add(nn.Linear,*)"),
    ID.replace("default", "theirs/of/four"),
    "theirs/short@x86",
)
GLOBS = (
    "*",
    ID,
    "fbgemm/*",
    "*/nn.Linear/*",
    "*/nn.Linear*/*/ptq/*/exact@x86",
    "*/[no]*/static-*/ptq/default/exact@*",
    "fbgemm/*[!r]/static-quint8/ptq/default/exact@x86",
    "fbgemm/nn.Linea[a/r]/static-quint8/ptq/default/exact@x86",
    "*/*/*/*/default/laws@*",
    "*/laws@x86",
    "xnnpack/*/*/*/*/*",
    "xnnpack/*",
    "theirs/*",
    "*/??????????????/*/ptq/*/*",
    "*/theirs/of/four/*",
)


def entry(*match: str, exclude: tuple[str, ...] = (), check: str = "numerics") -> Entry:
    return Entry(KnownFinding("an-entry", "", "", ""), match, frozenset({check}), "", exclude=exclude)


@pytest.mark.parametrize("run_id", IDS)
@pytest.mark.parametrize("check", ["numerics", "relations", "crashes"])
def test_compiled_entries_cover_what_each_matches(run_id: str, check: str) -> None:
    entries = [entry(glob, check=check) for glob in GLOBS]
    entries += [entry("*", exclude=(glob,), check=check) for glob in GLOBS]
    entries += [entry(one, other, exclude=(GLOBS[4],), check=check) for one in GLOBS for other in GLOBS]
    assert Coverage(entries).of(run_id) == [one for one in entries if one.matches(run_id)]

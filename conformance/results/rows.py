"""Rows, the results of runs, and the files that hold them."""

import hashlib
import json
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from conformance.configs.engines import IN_PLACE
from conformance.errors import UsageError

from .codec import By, Count, Finite, Seconds, decode_fields, schema_of, schema_of_fields
from .findings import KINDS, Finding, detail_of, from_json
from .jsonl import Format, PartialFile, read_text
from .profiles import CHECKS, EXACT, OF_QUANTIZERS, OF_SOME_RUNS, OF_WORKFLOWS, PROFILES
from .verdicts import AS_CHECKS, IN_ORDER, Verdict

OUTCOMES = ("pass", "fail", "skip")
"""Outcomes of a check."""
AnyFinding = Annotated[Finding, By("a finding", from_json)]


@dataclass(frozen=True)
class Row:
    """Result of one run.

    `steps_max` and the counts are about the elements that the check `numerics` compared: `mismatched` differ by more than the
    tolerance, `ties` are rounded to the other of two codes at equal distance, `tolerated` differ within the tolerance; the
    rest of `total` are equal. `detail` is the text of `findings`, or the reason why the run is unavailable or unjudged.
    `form` says how a run that deviates differs from default use, in the operator's terms, such as `padding='same'`.
    """

    id: str
    backend: str
    pattern: str
    dtype_config: str
    flow: str
    variant: str
    profile: str
    engine: str
    verdict: Verdict
    checks: Mapping[str, str] = field(default_factory=dict)
    detail: str = ""
    findings: tuple[AnyFinding, ...] = ()
    kernels: tuple[str, ...] = ()
    steps_max: Count | None = None
    mismatched: Count | None = None
    ties: Count | None = None
    tolerated: Count | None = None
    total: Count | None = None
    sqnr_db: Finite | None = None
    known: str | None = None
    form: str = ""
    seconds: Seconds = 0.0

    @cached_property
    def failed(self) -> frozenset[str]:
        """Names of the checks that failed; a crash counts as a failed check named `crashes`, and so does `undefined`."""
        failed = frozenset(name for name, outcome in self.checks.items() if outcome == "fail")
        return failed | {str(self.verdict)} if self.verdict in AS_CHECKS else failed

    @property
    def claim(self) -> str:
        """Id of the run's claim."""
        return f"{self.backend}/{self.pattern}/{self.dtype_config}"

    def to_json(self) -> dict[str, Any]:
        """JSON object of the row's fields. A float that is not finite is left for the JSON encoder to refuse."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        findings = [finding.to_json() for finding in self.findings]
        return {**values, "verdict": str(self.verdict), "checks": dict(self.checks), "findings": findings}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Row":
        """A row from the JSON object of its fields. Raises TypeError naming a field that is unknown, missing or wrong."""
        row: Row = decode_fields(cls, values)
        return row


def contradiction(row: Row, *, findings: bool = True) -> str:
    """How a row contradicts itself, or an empty text.

    Either a check or an outcome is unknown, or the verdict does not follow from the checks, the id from the fields, or, with
    `findings`, the detail from the findings.
    """
    for name, outcome in row.checks.items():
        if name not in CHECKS:
            return f"check {name!r} is none of {', '.join(CHECKS)}"
        if outcome not in OUTCOMES:
            return f"{name} is {outcome!r}, which is none of {', '.join(OUTCOMES)}"
    if wrong := _verdict_contradiction(row):
        return wrong
    case = (row.backend, row.pattern, row.dtype_config, row.flow, row.variant, row.profile)
    expected_id = f"{'/'.join(case)}@{row.engine}"
    if expected_id != row.id:
        return f"its fields are those of {expected_id}"
    return _findings_contradiction(row) if findings else ""


def _verdict_contradiction(row: Row) -> str:
    failed = sorted(name for name, outcome in row.checks.items() if outcome == "fail")
    profile = PROFILES.get(row.profile, EXACT)
    if not row.verdict.judged:
        return f"verdict '{row.verdict}' and checks" if row.checks else ""
    # the row does not say whether a quantizer declares the claim
    dues = [profile.checks, profile.checks_of_quantizers]
    if row.engine in IN_PLACE:
        dues = [OF_WORKFLOWS]
    missing = [[name for name in due if name not in row.checks] for due in dues]
    if all(missing):
        least = min(missing, key=lambda names: len(names))
        return f"it {row.verdict} and has no check {', '.join(least)}"
    if row.verdict.fails and not failed:
        return f"it {row.verdict} and no check fails"
    if failed and not row.verdict.fails:
        return f"it {row.verdict} and {', '.join(failed)} fails"
    return ""


def _findings_contradiction(row: Row) -> str:
    found = {finding.check for finding in row.findings}
    if missing := sorted(row.failed - found):
        return f"{', '.join(missing)} fails without a finding"
    # a check that the documentation leaves open is skipped whatever it finds
    skipped = {name for name, outcome in row.checks.items() if outcome == "skip"}
    if others := sorted(found - row.failed - skipped):
        return f"it has a finding of {', '.join(others)}, which does not fail"
    if row.findings and (detail := detail_of(row.findings)) != row.detail:
        return f"its findings render as {detail!r}, its detail is {row.detail!r}"
    return ""


@dataclass(frozen=True)
class RowsFile:
    """The rows of one invocation: a complete rows file, or a part of a merged one. `text` are its lines."""

    header: Mapping[str, Any]
    rows: tuple[Row, ...]
    footer: Mapping[str, Any]
    text: str

    @property
    def finished(self) -> str | None:
        """When the invocation ended, in ISO 8601, in UTC; None in files of earlier versions, which do not state it."""
        return self.footer.get("finished")

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the text."""
        return digest_of(self.text)


def digest_of(text: str) -> str:
    """SHA-256 of the text of a rows file, by which other files refer to it."""
    return hashlib.sha256(text.encode()).hexdigest()


def counts(rows: Iterable[Row]) -> dict[str, Any]:
    """Count rows by verdict, failures by check, and verdicts by engine."""
    rows = list(rows)
    verdicts = Counter(row.verdict for row in rows)
    checks = Counter(check for row in rows for check in row.failed)
    engines: dict[str, Counter[str]] = {}
    for row in rows:
        engines.setdefault(row.engine, Counter())[row.verdict] += 1
    return {
        "rows": len(rows),
        # files of earlier versions do not count these
        "verdicts": {
            str(verdict): verdicts[verdict]
            for verdict in IN_ORDER
            if verdicts[verdict] or verdict not in (Verdict.UNDEFINED, Verdict.UNJUDGED)
        },
        # files without a quantizer count the checks of configs alone, as they did before
        "checks": {
            check: checks[check]
            for check in CHECKS
            if checks[check] or check not in (*OF_QUANTIZERS.values(), *OF_SOME_RUNS)
        },
        "engines": {
            engine: {str(verdict): count for verdict, count in sorted(by_verdict.items())}
            for engine, by_verdict in sorted(engines.items())
        },
        "known": sum(row.known is not None for row in rows),
    }


def _decoded(kind: str, values: dict[str, Any], schema: int) -> Row:
    if schema == 1:
        values.setdefault("findings", [])
    if schema < 3:
        values.setdefault("form", "")
    row = Row.from_json(values)
    if wrong := contradiction(row, findings=schema > 1):
        raise TypeError(wrong)
    return row


FORMAT: Format[Row] = Format(
    name="a rows file",
    kinds=("row",),
    schemas=(1, 2, 3),
    decode=_decoded,
    encode=lambda row: ("row", row.to_json()),
    key=lambda row: row.id,
    counts=counts,
    unit="rows",
    again="run it again",
)
"""Rows files. Rows of schema 1 have no findings, those before schema 3 no form."""


def schema() -> dict[str, Any]:
    """The JSON Schema of one line of a rows file, with the checks, verdicts and kinds of findings of the code."""
    published: dict[str, Any] = json.loads((Path(__file__).parent / "rows.schema.json").read_text(encoding="utf-8"))
    definitions = {name: of for name, of in published["$defs"].items() if not name.startswith("finding")}
    kinds = {f"finding-{kind}": finding_schema(of) for kind, of in sorted(KINDS.items())}
    generated = {
        "check": {"enum": list(CHECKS)},
        "verdict": schema_of(Verdict),
        "finding": {"oneOf": [{"$ref": f"#/$defs/{name}"} for name in kinds]},
        **kinds,
    }
    return {**published, "$defs": {**definitions, **generated}}


def finding_schema(of: type[Finding]) -> dict[str, Any]:
    """The JSON Schema of a kind of findings: its name, its description, and its fields."""
    return {"description": " ".join((of.__doc__ or "").split()), **schema_of_fields(of, kind={"const": of.kind})}


class Writer(PartialFile[Row]):
    """Writes a rows file: beside its place while running, in its place when complete.

    Raises UsageError if it cannot be written.
    """

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        super().__init__(FORMAT, path, header, "--results")
        self.rows: dict[str, Row] = {}
        self.lost = 0

    def add(self, row: Row) -> None:
        self.rows[row.id] = row
        super().add(row)

    @property
    def executed(self) -> int:
        """How many rows come from an execution."""
        return sum(row.verdict.executed for row in self.rows.values())

    def finish(self, footer: Mapping[str, Any], finished: str = "") -> str:
        """Write the complete file, rows in order of id, and return its SHA-256.

        `finished` is the time in ISO 8601, in UTC, that the footer states, by default the present.
        """
        finished = finished or datetime.now(UTC).isoformat(timespec="seconds")
        rows = [self.rows[key] for key in sorted(self.rows)]
        return digest_of(self.complete(rows, {**footer, "finished": finished}))

    def finish_early(self, lost: int) -> None:
        """Leave the partial file with a footer that says how many runs were not executed; keep what is in its place."""
        self.lost = lost
        total = len(self.rows) + lost
        self.end_early(f"its invocation ended after {len(self.rows)} of {total} runs", [*self.rows.values()])


def read(path: Path) -> RowsFile:
    """Read the rows file of one invocation. Raises UsageError as `read_all` does, and for a merged file."""
    parts = read_all(path)
    if len(parts) > 1:
        raise UsageError(f"{path}: merged from {len(parts)} rows files, where that of one invocation is wanted")
    return parts[0]


def read_all(path: Path) -> tuple[RowsFile, ...]:
    """Read a rows file, or several merged into one, each with its header and footer.

    Raises UsageError naming the file, and the line if it is one, that is missing, damaged, truncated, too new, or contradicts
    itself.
    """
    parts = read_text(FORMAT, path)
    for part in parts:
        if "finished" in part.footer and not _is_time(part.footer["finished"]):
            raise UsageError(f"{path}: damaged: finished of its footer is {part.footer['finished']!r}; {FORMAT.again}")
    return tuple(RowsFile(part.header, part.items, part.footer, part.text) for part in parts)


def _is_time(value: object) -> bool:
    """Whether a value is a time in ISO 8601, in UTC."""
    try:
        return isinstance(value, str) and datetime.fromisoformat(value).utcoffset() == timedelta()
    except ValueError:
        return False


def assembled(header: Mapping[str, Any], files: Iterable[RowsFile]) -> RowsFile:
    """The file of one invocation that has the rows of several, with this header. The seconds of their footers add up, and it
    finished when the last of them did."""
    files = list(files)
    rows = sorted((row for file in files for row in file.rows), key=lambda row: row.id)
    footer = counts(rows)
    for name in [name for name in files[0].footer if name not in footer]:
        values: list[Any] = [file.footer.get(name) for file in files]
        footer[name] = round(sum(values), 3) if all(isinstance(value, int | float) for value in values) else values[0]
    if "finished" in footer:
        footer["finished"] = max(file.finished or "" for file in files)
    text = FORMAT.part(header, [FORMAT.line(*FORMAT.encode(row)) for row in rows], footer)
    return RowsFile(header, tuple(rows), footer, text)


def repro_command(run_id: str, options: Iterable[str] = ()) -> str:
    """The command that prints the reproduction of a run that these options select."""
    quoted = run_id.replace("'", "'\\''")
    return " ".join(["python -m conformance repro", *map(shlex.quote, options), f"'{quoted}'"])

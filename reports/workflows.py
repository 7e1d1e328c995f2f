"""The page of torchao's workflows: what torchao marks stable, and what of it works on each engine."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.configs.engines import WORKFLOW_ENGINES
from conformance.errors import UsageError
from conformance.markdown import code, escaped
from conformance.markdown import table as markdown_table
from conformance.results.severity import assessment
from conformance.results.status import STATUSES, Support

from . import documents, support
from .load import Report
from .use import CLAIMED

ENGINES = WORKFLOW_ENGINES["torchao"]
BITS = "weight_dtype=torch.int"
"""What an expression has before the bits of a weight's integers."""

Cell = tuple[str, str, str]
"""A cell's pattern, dtype config and engine."""


@dataclass(frozen=True)
class Promise:
    """A claim of a workflow: the pattern and dtype config that rows have, the expression of the config, the dtype of the
    module, and how torchao marks the config."""

    pattern: str
    dtype_config: str
    source: str
    dtype: str
    mark: str

    @property
    def config(self) -> str:
        """The class of the config."""
        return self.source.partition("(")[0]

    @property
    def arguments(self) -> tuple[str, str]:
        """The arguments of the config, with N for the bits of the weight's integers, and the bits, if it names them."""
        arguments = self.source.removeprefix(f"{self.config}(").removesuffix(")")
        before, found, after = arguments.partition(BITS)
        return (f"{before}{found}N{after[1:]}", after[0]) if found else (arguments, "")


def page(report: Report, promises: Sequence[Promise]) -> list[str]:
    """The lines of the page in markdown. Raises UsageError unless the rows are of one environment, and of these claims."""
    environments = {column.environment for column in report.columns}
    if len(environments) > 1:
        raise UsageError(f"rows of {len(environments)} environments: the page has room for one: name the rows of one")
    made = support.table(report)
    _check(made, promises)
    numbers = made.cause_numbers()
    counts = {engine: counts.values() for (engine, *_), counts in support.claims(made).items()}
    return documents.lines(
        "workflows.md",
        claims=len(promises),
        unexecuted=sum({cell.status for cell in of.values()} == {Support.UNAVAILABLE} for of in made.cells.values()),
        where=", ".join([support.headings(made)[1], *environments.pop().packages]),
        totals=markdown_table(
            ["engine", *CLAIMED],
            ([code(engine), *counts[engine]] for engine in ENGINES if engine in counts),
            range(1, 1 + len(CLAIMED)),
        ),
        tables=_tables(promises, _cells(report, made, numbers)),
        statuses=STATUSES,
        numbers=numbers,
        findings=made.findings,
    )


def _check(made: support.Table, promises: Iterable[Promise]) -> None:
    promised = {(promise.pattern, promise.dtype_config) for promise in promises}
    if missing := sorted(promised - made.cells.keys()):
        raise UsageError(
            f"no run of torchao/{'/'.join(missing[0])} ({len(missing)} of {len(promised)} claims): name all rows of "
            "tox -e torchao"
        )
    if others := sorted(made.cells.keys() - promised):
        raise UsageError(f"{'/'.join(others[0])} is no claim of torchao: name the rows of tox -e torchao alone")


def _cells(report: Report, made: support.Table, numbers: Mapping[str, int]) -> dict[Cell, str]:
    """The text of each cell."""
    variants: dict[Cell, dict[str, bool]] = {}
    for row in (result.row for result in report.results if result.row.verdict.executed):
        works = variants.setdefault((row.pattern, row.dtype_config, row.engine), {})
        works[row.variant] = works.get(row.variant, True) and assessment(row) is None
    return {
        (*claim, place.engine): _text(cell, variants.get((*claim, place.engine), {}), numbers)
        for claim, by_place in made.cells.items()
        for place, cell in by_place.items()
    }


def _text(cell: support.Cell, variants: Mapping[str, bool], numbers: Mapping[str, int]) -> str:
    """The status with the findings in default use; of the variants that ran how many work, with the findings of others."""
    by_default, others = (
        "".join(
            f" [{numbers[cause.finding]}](#{cause.finding})" for cause in cell.causes if bool(cause.forms) is formed
        )
        for formed in (False, True)
    )
    if cell.status is Support.UNAVAILABLE:
        return f"{cell.status.symbol}{others}"
    ran = f"{',' if by_default else ''} {sum(variants.values())} of {len(variants)}"
    return f"{cell.status.symbol}{by_default}{ran}{':' if others else ''}{others}"


def _tables(promises: Sequence[Promise], cells: Mapping[Cell, str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the heading and the table of each config and pattern. Workflows that differ in the bits of integers alone, and
    have equal cells, share a line."""
    made = {(p.dtype, engine) for p in promises for engine in ENGINES if (p.pattern, p.dtype_config, engine) in cells}
    dtypes = dict.fromkeys(promise.dtype for promise in promises)
    columns = [(dtype, engine) for dtype in dtypes for engine in ENGINES if (dtype, engine) in made]
    workflows: dict[tuple[str, str], list[Promise]] = {}
    for promise in promises:
        workflows.setdefault((promise.pattern, promise.source), []).append(promise)
    tables: dict[tuple[str, str], dict[str, dict[tuple[str, ...], list[str]]]] = {}
    for members in workflows.values():
        (first, *_) = members
        arguments, bits = first.arguments
        line = (escaped(first.mark), *_line(members, columns, cells))
        by_arguments = tables.setdefault((first.config, first.pattern), {})
        by_arguments.setdefault(arguments, {}).setdefault(line, []).append(bits)
    heads = ["arguments", "torchao", *(f"{dtype} {engine}" for dtype, engine in columns)]
    for (config, pattern), by_arguments in tables.items():
        rows = (
            [code(arguments) + (f", N = {', '.join(bits)}" if any(bits) else ""), *line]
            for arguments, by_line in by_arguments.items()
            for line, bits in by_line.items()
        )
        yield f"{code(config)} of {code(pattern)}", [*markdown_table(heads, rows)]


def _line(members: Iterable[Promise], columns: Iterable[tuple[str, str]], cells: Mapping[Cell, str]) -> Iterator[str]:
    """Yield the cells of a workflow, whose claims are `members`, by dtype and engine."""
    claims = {promise.dtype: (promise.pattern, promise.dtype_config) for promise in members}
    for dtype, engine in columns:
        yield cells.get((*claims[dtype], engine), Support.UNAVAILABLE.symbol) if dtype in claims else ""


def write(lines: Iterable[str], root: Path) -> Iterator[Path]:
    """Write the page, and yield its path."""
    return documents.written({root / "docs" / "torchao-claims.md": "\n".join(lines) + "\n"})

"""The summary of an invocation says first what becomes of the layers of networks, if it ran enough of them."""

from pathlib import Path

from invocation import HEADER, row

from conformance.results.in_use import SHRUNK, read
from conformance.results.rows import Row, Writer
from conformance.terminal import lines


def summary(folder: Path, rows: list[Row]) -> list[str]:
    writer = Writer(folder / "rows.jsonl", HEADER)
    for one in rows:
        writer.rows[one.id] = one
    return [*lines(writer, [])]


def test_shares_of_layers_come_first(tmp_path: Path) -> None:
    layers = [one for one in read(SHRUNK) if one.variant and not one.run_as]
    rows = [row(one.pattern, variant=one.variant, profile="in_use") for one in layers]
    first, second, *_ = summary(tmp_path, [row("nn.Linear"), *rows])
    total = sum(one.occurrences for one in read(SHRUNK))
    right = sum(one.occurrences for one in read(SHRUNK) if one.variant) / total
    assert first.startswith(f"fbgemm: of {total:,} layers of 140 public networks {right:.1%} right in integers, ")
    assert second.startswith("fbgemm: 1 of ")


def test_a_selection_of_layers_has_no_shares(tmp_path: Path) -> None:
    layer = next(one for one in read(SHRUNK) if one.pattern == "nn.Linear" and one.variant)
    rows = [row("nn.Linear"), row("nn.Linear", variant=layer.variant, profile="in_use")]
    rows += [row(name) for name in ("nn.Conv2d", "operator.add", "nn.Conv2d+nn.BatchNorm2d")]
    assert not [line for line in summary(tmp_path, rows) if "networks" in line]

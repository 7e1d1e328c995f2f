"""Timings as one page of HTML that opens from disk: what changed, how fast it is beside float, and each case's history."""

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance.bench.results import TimingsFile

from .html import taken, templates, visible
from .regression import VERDICTS, Regression, counted, stated
from .speed import Speed, speeds

if TYPE_CHECKING:
    from .history import ChangePoint, Series

FASTEST = 8.0
"""The speed-up at which a bar ends; what is faster is said by its figure."""


def write(
    files: Sequence[TimingsFile],
    folder: Path,
    regression: Regression | None = None,
    history: Sequence["Series"] = (),
    points: Sequence["ChangePoint"] = (),
) -> Path:
    """Write the page into a folder, in the place of an earlier one, and return it.

    Raises UsageError for a folder that holds something else.
    """
    with taken(folder):
        data = json.dumps(visible(_data(regression, history, points)), separators=(",", ":"))
        (folder / "latency.js").write_text(f"latency.show({data});\n", encoding="ascii")
        page = folder / "latency.html"
        page.write_text(_page(files, regression, history, points), encoding="utf-8")
    return page


def _page(
    files: Sequence[TimingsFile],
    regression: Regression | None,
    history: Sequence["Series"],
    points: Sequence["ChangePoint"],
) -> str:
    found = speeds(files)
    return (
        templates()
        .get_template("latency.html.j2")
        .render(
            page="latency",
            pages={"latency": "Latency"},
            files=files,
            regression=regression,
            counted=counted(regression) if regression else {},
            stated=stated(regression) if regression else "",
            verdicts=VERDICTS,
            families=families(found),
            engines=sorted({one.engine for one in found}),
            speeds=sorted(found, key=lambda one: one.case),
            history=history,
            points=points,
            width=width,
        )
    )


def families(found: Sequence[Speed]) -> dict[str, dict[str, float]]:
    """The geometric mean of the speed-ups of a family's cases on each engine."""
    groups: dict[str, dict[str, list[float]]] = {}
    for one in found:
        groups.setdefault(one.family, {}).setdefault(one.engine, []).append(one.speedup)
    return {
        name: {engine: statistics.geometric_mean(made) for engine, made in sorted(engines.items())}
        for name, engines in sorted(groups.items())
    }


def width(speedup: float) -> float:
    """How long a bar is in percent: from a speed-up of 1/8 to one of 8, in equal steps for equal factors."""
    return 50 + 50 * max(-1.0, min(1.0, math.log(speedup) / math.log(FASTEST)))


def _data(
    regression: Regression | None, history: Sequence["Series"], points: Sequence["ChangePoint"]
) -> dict[str, Any]:
    """What the charts show."""
    changed = [] if regression is None else regression.cases
    marks: dict[tuple[str, str], list[int]] = {}
    for point in points:
        marks.setdefault((point.series.case, point.series.platform), []).append(point.index)
    return {
        "changes": [[one.case, one.change, one.low, one.high, VERDICTS.index(one.verdict)] for one in changed],
        "verdicts": VERDICTS,
        "margin": regression.margin if regression else None,
        "history": [
            {
                "case": series.case,
                "platform": series.platform,
                "nights": [list(asdict(night).values()) for night in series.nights],
                "points": marks.get((series.case, series.platform), []),
            }
            for series in history
        ],
    }

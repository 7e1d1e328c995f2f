"""Timings as one page of HTML that opens from disk: changes, speed-up over float, and the history of each case."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance.bench.results import TimingsFile
from conformance.bench.verdicts import VERDICTS

from . import end_to_end
from .html import page_folder, templates, visible
from .noise import PARTS, noise
from .regression import Regression, counted, explanation
from .speedup import DIRECTIONS, speeds, summaries

if TYPE_CHECKING:
    from .history import ChangePoint, Series

FASTEST = 8.0
"""The speed-up, or its reciprocal, at which bars end."""


def write(
    files: Sequence[TimingsFile],
    folder: Path,
    regression: Regression | None = None,
    history: Sequence["Series"] = (),
    points: Sequence["ChangePoint"] = (),
) -> Path:
    """Write the page into a folder and return its path. Replaces an earlier page.

    Raises UsageError for a folder with other content.
    """
    with page_folder(folder):
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
    all_speeds = speeds(files)
    return (
        templates()
        .get_template("latency.html.j2")
        .render(
            page="latency",
            pages={"latency": "Latency"},
            files=files,
            regression=regression,
            counted=counted(regression) if regression else {},
            explanation=explanation(regression) if regression else "",
            verdicts=VERDICTS,
            summaries=summaries(all_speeds),
            directions=DIRECTIONS,
            engines=sorted({speed.engine for speed in all_speeds}),
            noises=[(file, measured) for file in files if (measured := noise(file))],
            parts=PARTS,
            networks=end_to_end.settings(files),
            speeds=sorted(all_speeds, key=lambda speed: speed.case),
            history=history,
            points=points,
            width=width,
        )
    )


def width(speedup: float) -> float:
    """Position of a bar's end in percent, on a logarithmic scale from a speed-up of 1/8 to 8."""
    return 50 + 50 * max(-1.0, min(1.0, math.log(speedup) / math.log(FASTEST)))


def _data(
    regression: Regression | None, history: Sequence["Series"], points: Sequence["ChangePoint"]
) -> dict[str, Any]:
    """The data of the charts."""
    changed = [] if regression is None else regression.cases
    marks: dict[tuple[str, str], list[int]] = {}
    for point in points:
        marks.setdefault((point.series.title, point.series.platform), []).append(point.index)
    return {
        "changes": [[case.case, case.change, case.low, case.high, VERDICTS.index(case.verdict)] for case in changed],
        "verdicts": VERDICTS,
        "margin": regression.margin if regression else None,
        "history": [
            {
                "case": series.title,
                "platform": series.platform,
                "nights": [list(asdict(night).values()) for night in series.nights],
                "points": marks.get((series.title, series.platform), []),
            }
            for series in history
        ],
    }

"""Timings as one page of HTML that opens from disk: changes, speed-up over float, and the history of each case."""

import json
import math
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance.bench.results import TimingsFile
from conformance.bench.verdicts import VERDICTS

from . import end_to_end
from .html import page_folder, templates, visible
from .noise import noise
from .regression import Regression, counted, explanation
from .speedup import DIRECTIONS, by, speeds, summaries

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
    all_speeds = speeds(files)
    text = (
        templates()
        .get_template("latency.html.j2")
        .render(
            page="latency",
            pages={"latency": "Latency"},
            files=files,
            regression=regression,
            counted=counted(regression) if regression else {},
            explanation=explanation(regression) if regression else "",
            summaries=summaries(all_speeds),
            directions=DIRECTIONS,
            engines=[*by("engine", all_speeds)],
            noises=[(file, measured) for file in files if (measured := noise(file))],
            networks=end_to_end.settings(files),
            speeds=sorted(all_speeds, key=lambda speed: speed.case),
            history=history,
            points=points,
            width=width,
        )
    )
    data = json.dumps(visible(_data(regression, history, points)), separators=(",", ":"))
    with page_folder(folder):
        (folder / "latency.js").write_text(f"latency.show({data});\n", encoding="ascii")
        (folder / "latency.html").write_text(text, encoding="utf-8")
    return folder / "latency.html"


def width(speedup: float) -> float:
    """Position of a bar's end in percent, on a logarithmic scale from a speed-up of 1/8 to 8."""
    return 50 + 50 * max(-1.0, min(1.0, math.log(speedup) / math.log(FASTEST)))


def _data(
    regression: Regression | None, history: Sequence["Series"], points: Sequence["ChangePoint"]
) -> dict[str, Any]:
    """The data of the charts."""
    changed = [] if regression is None else regression.cases
    return {
        "changes": [[case.case, case.change, case.low, case.high, VERDICTS.index(case.verdict)] for case in changed],
        "verdicts": VERDICTS,
        "margin": regression.margin if regression else None,
        "history": [
            {
                "case": series.title,
                "platform": series.platform,
                "nights": [astuple(night) for night in series.nights],
                "points": [point.index for point in points if point.series == series],
            }
            for series in history
        ],
    }

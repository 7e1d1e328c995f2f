"""The command: options, the stages of an analysis, the file of mutants, and the page that is written from it."""

import argparse
import fnmatch
import importlib.util
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from conformance.cases.families import Family
from conformance.configs.engines import WORKFLOW_ENGINES
from conformance.configs.registry import BACKENDS
from conformance.errors import UsageError
from conformance.execution import batch
from conformance.fuzz.samples import Sample
from conformance.goldens.golden import name_of
from conformance.models import apis
from conformance.results.profiles import PROFILES
from conformance.selection import Selection
from conformance.suggestions import did_you_mean

from . import cover, records, table
from .drawing import DRAWS, Draw
from .mutant import Mutant
from .parallel import results_of
from .population import drawn_samples, searched_samples
from .preparing import Drawn, draw, engines
from .records import Record
from .stages import Stage
from .witnesses import drawn, ordinary

BACKENDS_OF_AN_ORDINARY_RUN = ("qnnpack", "fbgemm", "onednn")
NIGHTLY = 2000
"""Samples of each family and engine that the nightly search draws."""

CHUNK = 250
"""Samples that are drawn from one seed."""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser("mutants", description=__doc__)
    made.add_argument("--backend", action="append", default=[], metavar="NAME", help="mutate its engines (repeatable)")
    made.add_argument(
        "--mutants", type=int, default=1000, metavar="N", help="the number of mutants in all (default 1000)"
    )
    made.add_argument(
        "--seed", type=int, default=0, metavar="S", help="the seed of populations and mutants (default 0)"
    )
    made.add_argument(
        "--draw",
        choices=[*DRAWS],
        default="layers",
        help="draw them from layers of networks, with joint conditions (default), or from drawn samples",
    )
    made.add_argument("--only", metavar="GLOB", help="only mutants whose id or title matches")
    made.add_argument(
        "--fuzz",
        type=int,
        nargs="?",
        const=NIGHTLY,
        default=0,
        metavar="N",
        help=f"search with N drawn samples of each family on each engine ({NIGHTLY}, as the nightly search)",
    )
    made.add_argument(
        "--out", type=Path, default=Path("reports/out/mutants.jsonl"), metavar="FILE", help="the file of mutants"
    )
    made.add_argument("--witnesses", type=Path, metavar="FILE", help="write in which runs each mutant shows, as JSON")
    made.add_argument(
        "--cover", action="store_true", help="write docs/cover.md, too: how many runs have each condition"
    )
    made.add_argument(
        "--write-docs",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="write docs/mutants.md from a file of mutants and the totals of further ones, and end",
    )
    return made


@dataclass(frozen=True)
class Analysis:
    """The options of an analysis. `say` prints a line of progress, `keep` stores the records after each stage."""

    backends: Sequence[str]
    draw: Draw
    count: int
    seed: int
    only: str | None
    fuzz: int
    say: Callable[[str], None]
    keep: Callable[[list[Record]], None]
    witnesses: Path | None = None
    cover: bool = False

    def run(self) -> list[Record]:
        """Draw mutants and take them through the stages."""
        batch.warm_up()
        selection = Selection(backends=self.backends)
        for claims in selection.claims:
            apis.of(claims).warm_up(claims)
        made = draw(engines(self.backends), self.draw, self.count, self.seed, self.say)
        mutants = self._selected(made.mutants)
        stage = self._ordinary(selection)
        counts = cover.Counts() if self.cover else None
        stage.observe(mutants, counts=counts)
        self.say(f"{stage.name}: {len(stage.witnesses)} witnesses agree with the ledger without a mutant")
        if self.witnesses is not None:
            self.witnesses.write_text(stage.sets(), encoding="utf-8")
        if counts is not None:
            required = {one.name: cover.of_layers(one, self.seed) for one in engines(self.backends)}
            cover.PATH.write_text(cover.document(required, counts), encoding="utf-8")
        found = stage.hunt(mutants)
        result = [Record(mutant.id, mutant.title, mutant, found[mutant.id]) for mutant in mutants]
        self.keep(result)
        if self.fuzz:
            result = self._searched(selection, made, result)
            self.keep(result)
        return result

    def _selected(self, mutants: list[Mutant]) -> list[Mutant]:
        if self.only is None:
            return mutants
        glob = self.only
        chosen = [m for m in mutants if fnmatch.fnmatchcase(m.id, glob) or fnmatch.fnmatchcase(m.title, glob)]
        if not chosen:
            raise UsageError(f"--only {glob!r}: matches none of the {len(mutants)} mutants")
        return chosen

    def _ordinary(self, selection: Selection) -> Stage:
        """The runs of an ordinary invocation and the samples of its bounded searches."""
        witnesses = ordinary(selection)
        selection.store.preload(
            name_of(witness.run) for witness in witnesses if PROFILES[witness.run.profile].golden == "stored"
        )
        chosen = selection.families
        samples = dict(results_of(lambda family: (family.id, searched_samples(family)), chosen, "drawing samples"))
        return Stage("ordinary run", [*witnesses, *drawn(chosen, samples, selection)], selection, self.say)

    def _searched(self, selection: Selection, made: Drawn, result: list[Record]) -> list[Record]:
        """The records with the results of a search for those that survive."""
        survivors = [record.mutant for record in result if record.survives]
        needed = {(mutant.engine, name) for mutant in survivors for name in made.families[mutant.engine, mutant.kernel]}
        chosen = [family for family in selection.families if (family.engine, family.name) in needed]
        samples = self._samples(chosen)
        stage = Stage("search", drawn(chosen, samples, selection), selection, self.say)
        stage.observe(survivors, judged=False)
        found = stage.hunt(survivors)
        return [replace(record, search=found.get(record.id)) for record in result]

    def _samples(self, chosen: Sequence[Family]) -> dict[str, list[Sample]]:
        """Samples of each family, by its id; engines of a backend share them."""
        shared = {(family.backend.name, family.name): family for family in chosen}
        chunks = [(family, number) for family in shared.values() for number in range(-(-self.fuzz // CHUNK))]

        def work(chunk: tuple[Family, int]) -> tuple[tuple[str, str], list[Sample]]:
            family, number = chunk
            count = min(CHUNK, self.fuzz - number * CHUNK)
            key = f"{self.seed}/search/{family.backend.name}/{family.name}/{number}"
            return (family.backend.name, family.name), drawn_samples(family, count, key)

        by_name: dict[tuple[str, str], list[Sample]] = {}
        for key, samples in results_of(work, chunks, "drawing samples"):
            by_name.setdefault(key, []).extend(samples)
        return {
            family.id: [replace(sample, engine=family.engine) for sample in by_name[family.backend.name, family.name]]
            for family in chosen
        }


def main(arguments: Sequence[str]) -> int:
    """Run the command. Returns the exit status: 0, or 2 for wrong input."""
    options = parser().parse_args(arguments)
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - started:6.0f} s  {text}", flush=True)

    try:
        if options.write_docs:
            table.PATH.write_text(table.text(*map(records.read, options.write_docs)), encoding="utf-8")
            return 0
        backends = checked(options.backend, options.mutants, options.fuzz)

        def keep(result: list[Record]) -> None:
            header = {
                **Selection(backends=backends).circumstances(),
                "draw": options.draw,
                "seed": options.seed,
                "asked_for": options.mutants,
                "samples": options.fuzz,
                "seconds": round(time.monotonic() - started),
            }
            records.write(options.out, header, result)

        how = DRAWS[options.draw]
        result = Analysis(
            backends,
            how,
            options.mutants,
            options.seed,
            options.only,
            options.fuzz,
            say,
            keep,
            options.witnesses,
            options.cover,
        ).run()
    except UsageError as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2
    print("\n".join(table.summary(result)))
    return 0


def _known() -> tuple[str, ...]:
    """The backends whose kernels can be mutated here."""
    in_place = [name for name in WORKFLOW_ENGINES if importlib.util.find_spec(name) is not None]
    return (*BACKENDS_OF_AN_ORDINARY_RUN, *in_place)


def checked(backends: Sequence[str], count: int, samples: int) -> list[str]:
    """The names of the backends. Raises UsageError for an option that makes no sense."""
    for name in backends:
        if name not in _known():
            known = ", ".join(_known())
            advice = did_you_mean(name, _known()) or "its engines lower ahead of time" * (name in BACKENDS)
            raise UsageError(f"--backend {name!r}: not one of {known}{f' ({advice})' if advice else ''}")
    if count < 1:
        raise UsageError(f"--mutants {count}: ask for at least one")
    if samples < 0:
        raise UsageError(f"--fuzz {samples}: ask for at least one sample")
    return list(dict.fromkeys(backends)) or [*BACKENDS_OF_AN_ORDINARY_RUN]

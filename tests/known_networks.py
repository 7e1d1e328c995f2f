"""Audit for each known finding a network that has it alone, one that has it in company, and a twin without it.

    python tests/known_networks.py [BACKEND…] [--write]

Prints what each audit says and exits with status 1 if one is wrong. With `--write` docs/known-networks.md is written.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.ao.quantization import default_qconfig

sys.path.insert(0, str(Path(__file__).parent.parent))

from conformance.audit import Fx
from conformance.audit.auditing import Settings, host
from conformance.audit.causes import explained
from conformance.audit.network import network
from conformance.audit.origins import SAME_DB
from conformance.cases.claims import backend
from conformance.cases.runs import Run, runs
from conformance.configs.registry import BY_NAME
from conformance.engines.availability import probe
from conformance.errors import UsageError
from conformance.models import build
from conformance.models.build import CannotBeBuilt, Subject, tensors
from conformance.results.audits import LOST_DB, Audit
from conformance.results.jsonl import replacing
from conformance.results.known import Coverage, Entry
from conformance.results.ledger import backends_of
from conformance.results.ledger_file import load
from tests.saturation import SATURATIONS

PAGE = Path(__file__).parent.parent / "docs/known-networks.md"
BACKENDS = ("qnnpack", "fbgemm", "onednn")
OTHERS = frozenset({"executorch", *BY_NAME})
BLAMED = frozenset({"observed", "reference", "lowered", "numerics"})
"""The checks whose failure an audit blames on a layer or an operator."""


class Verdict(StrEnum):
    """What an audit says of a network that has a finding, or of its twin."""

    NAMED = "named"
    BESIDE = "named as another"
    NO_LOSS = "no loss"
    REFUSED = "refused"
    CLEAN = "no blame"
    NEW = "NEW"
    WRONG = "wrong name"
    MISSED = "missed"
    BLAMED = "blamed"

    @property
    def right(self) -> bool:
        return self not in (Verdict.NEW, Verdict.WRONG, Verdict.MISSED, Verdict.BLAMED)


@dataclass(frozen=True)
class Shown:
    """A finding on an engine: runs that show it, of different claims if there are some, and one of a form without it."""

    finding: str
    engine: str
    alone: Run
    in_company: Run
    twin: Run | None


@dataclass(frozen=True)
class Outcome:
    """The verdicts about a finding on an engine; `said` is what those say that are wrong. `twin` is None if the operators
    show the finding in each form."""

    shown: Shown
    alone: Verdict
    in_company: Verdict
    twin: Verdict | None
    said: tuple[str, ...] = ()

    @property
    def right(self) -> bool:
        return self.alone.right and self.in_company.right and (self.twin is None or self.twin.right)


class Company(nn.Module):
    """A model whose first output goes through another layer, and a layer beside it that has an input of its own. `depth` is
    how many tuples the first output is in, `features` how many of its elements the other layer takes."""

    def __init__(self, model: nn.Module, features: int, depth: int) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)  # how much a network loses to a finding depends on its other layers
            self.model, self.behind, self.beside = model, nn.Linear(features, 3), nn.Linear(8, 3)
        self.features, self.depth = features, depth

    def with_company(self, other: Tensor, *args: Tensor) -> Any:
        first = results = self.model(*args)
        for _ in range(self.depth):
            first = first[0]
        flat = first.flatten()[: self.features].unsqueeze(0)
        return results, torch.relu(self.behind(flat)), torch.relu(self.beside(other))


class WithOne(Company):
    def forward(self, other: Tensor, x: Tensor) -> Any:
        return self.with_company(other, x)


class WithTwo(Company):
    def forward(self, other: Tensor, x: Tensor, y: Tensor) -> Any:
        return self.with_company(other, x, y)


class WithThree(Company):
    def forward(self, other: Tensor, x: Tensor, y: Tensor, z: Tensor) -> Any:
        return self.with_company(other, x, y, z)


def in_company(subject: Subject) -> Subject:
    """The subject with other layers behind and beside its model, on grids of their own."""
    with torch.no_grad():
        results = [subject.model.eval()(*one) for one in (subject.calibration, subject.fresh_inputs())]
    features = min(tensors(result)[0].numel() for result in results)
    if not features:
        raise UsageError("the model returns empty tensors")
    depth, first = 0, results[0]
    while isinstance(first, tuple):
        depth, first = depth + 1, first[0]
    model = (WithOne, WithTwo, WithThree)[len(subject.inputs) - 1](subject.model, features, depth).eval()
    for layer in ("behind", "beside"):
        subject.mapping.set_module_name(layer, default_qconfig)
    other = torch.linspace(-1, 1, 32).reshape(4, 8)
    return replace(subject, model=model, calibration=(other, *subject.calibration), inputs=(other, *subject.inputs))


def shown(name: str, entries: Sequence[Entry]) -> Iterator[Shown]:
    """The findings of a backend's runs that an audit can meet, on each engine that is there.

    Audits are of calibrated networks, which they execute once: what only training, constraints, repetitions or crashes show
    is not among them, nor what is undefined.
    """
    coverage, claims = Coverage(entries), backend(name)
    found: dict[tuple[str, str], list[Run]] = defaultdict(list)
    clean: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs(claims, [engine for engine in claims.engines if not probe(engine)]):
        if run.variant is None or run.constraint is not None or run.flow != "ptq":
            continue
        listed = coverage.of(run.id)
        if any(entry.undefined or entry.check & {"crashes", "memory"} for entry in listed):
            continue  # what memory holds decides
        shows = [entry for entry in listed if entry.check & BLAMED]
        for entry in shows:
            found[entry.id, run.engine].append(run)
        if _full(run) and not shows and run.profile == "exact" and not _excepted(run, entries):
            clean[run.claim.id, run.engine].append(run)
    for (finding, engine), ones in sorted(found.items()):
        ones.sort(
            key=lambda run: (not _full(run), run.profile != "exact", len({one.id for one in coverage.of(run.id)}))
        )
        other = next((run for run in ones if run.claim.id != ones[0].claim.id), ones[0])
        twins = (twin for run in ones for twin in clean.get((run.claim.id, engine), ()))
        yield Shown(finding, engine, ones[0], other, next(twins, None))


def _full(run: Run) -> bool:
    """Whether no input of a run is empty."""
    variant = run.variant
    return variant is not None and variant.batch != 0 and all(all(spec.shape) for spec in variant.operands.values())


def _excepted(run: Run, entries: Iterable[Entry]) -> bool:
    """Whether the ledger excepts a run from a finding, whose values do not show what runs like it do."""
    excepting = [entry for entry in entries if entry.exclude and entry.check & BLAMED]
    return any(where.matches(run.id) for entry in excepting for where in entry.where)


def outcome(one: Shown, entries: list[Entry], coverage: Coverage) -> Outcome:
    alone, said_alone = _verdict(one.finding, one.alone, False, entries, coverage)
    company, said_in_company = _verdict(one.finding, one.in_company, True, entries, coverage)
    twin: Verdict | None = None
    said_of_twin: tuple[str, ...] = ()
    if one.twin is not None:
        twin, said_of_twin = _verdict("", one.twin, False, entries, coverage)
    return Outcome(one, alone, company, twin, (*said_alone, *said_in_company, *said_of_twin))


def _verdict(
    finding: str, run: Run, company: bool, entries: list[Entry], coverage: Coverage
) -> tuple[Verdict, tuple[str, ...]]:
    """What the audit of a run's model says with its own mapping and data, alone or in company: that it has a finding, or
    nothing where the network has none."""
    try:
        subject = build.subject(run)
        if company:
            subject = in_company(subject)
        one = network(run.id, subject.model.eval(), [subject.calibration, subject.fresh_inputs()])
        found = Fx(run.engine, Settings(mapping=subject.mapping, stable=False, reduce=False)).audit(one)
    except (UsageError, CannotBeBuilt) as error:
        return Verdict.REFUSED if "empty" in str(error) else Verdict.MISSED, (f"{run.id}: {error}",)
    found = explained(found, entries, host())
    every = [*blames(found)]
    blamed = [(text, cause) for text, cause in every if cause == finding or cause not in SATURATIONS]
    said = tuple(f"{run.id}: {text}: {cause or 'NEW'}" for text, cause in blamed)
    named = {cause for _, cause in blamed}
    in_float = {layer.cause for layer in found.layers if layer.cause}
    # what only networks show apart has no conditions on runs
    listed = {entry.id for entry in (*coverage.of(run.id), *(one for one in entries if not one.where))}
    loses = found.agreement_db is not None and found.agreement_db < SAME_DB
    loses = loses and (found.lost_db is None or found.lost_db > LOST_DB) and blamed == every
    if not finding:
        return Verdict.BLAMED if named else Verdict.CLEAN, said
    if None in named:
        return Verdict.NEW, said
    if finding in named | in_float:
        return Verdict.NAMED, ()
    if named:
        return Verdict.BESIDE if named <= listed else Verdict.WRONG, said
    return (Verdict.MISSED, (f"{run.id}: nothing",)) if loses else (Verdict.NO_LOSS, ())


def blames(found: Audit) -> Iterator[tuple[str, str | None]]:
    """What an audit blames, each with its cause, None if it is new."""
    for layer in found.layers:
        yield from ((f"{layer.name}: {fault.text}", fault.cause) for fault in layer.faults)
    yield from ((f"{refusal.operator}: {refusal.error}", refusal.cause) for refusal in found.refusals)
    if found.failure:
        yield found.failure, found.cause


def outcomes(name: str, engines: Sequence[str] = ()) -> Iterator[Outcome]:
    """Yield what audits say of the findings of a backend, on some of its engines or all."""
    entries = [entry for entry in load() if entry.applies(host())]
    coverage = Coverage(entries)
    for one in shown(name, entries):
        if not engines or one.engine in engines:
            yield outcome(one, entries, coverage)


INTRODUCTION = """\
# Known findings in networks

An audit explains what it blames by the same ledger as runs. This page has, for each finding that an audit can meet and
each engine, what audits say of three small networks: one that has the finding alone, the model of a run that shows it;
one that has it in company, with other layers behind and beside the model of another run; and a twin, the same operators
in a form without it. Measured with torch {torch} on {machine} {isa} by `tox -e known -- --write`, which exits with
status 1 if a verdict is wrong.

- **named**: the audit names this finding, at the layer or operator that has it, or as what keeps the layer in float
- **named as another**: the ledger lists another finding for the same run, which hides this one: it raises earlier
- **no loss**: the engine's output is within {lost:g} dB of the reference's, and nothing is blamed
- **refused**: the network returns empty tensors, with which nothing can be compared
- **no blame**: of a twin; `–` where the operators show the finding in every form

{count} audits of {findings} findings on {engines} engines; {wrong} verdicts are wrong.

| finding | engines | alone | in company | twin |
| --- | --- | --- | --- | --- |
"""

ELSEWHERE = """
## Findings that these networks cannot meet

"""


def page(results: Sequence[Outcome], entries: Iterable[Entry]) -> str:
    rows: dict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    for one in results:
        rows[one.shown.finding, one.alone, one.in_company, one.twin or "–"].append(one.shown.engine)
    found = {one.shown.finding for one in results}
    text = INTRODUCTION.format(
        torch=host().torch.partition("+")[0], machine=host().arch, isa=host().isa.replace("_", " "), lost=LOST_DB,
        count=sum(2 + (one.twin is not None) for one in results), findings=len(found),
        engines=len({one.shown.engine for one in results}), wrong=sum(not one.right for one in results),
    )  # fmt: skip
    text += "".join(
        f"| {finding} | {', '.join(engines)} | {' | '.join(verdicts)} |\n"
        for (finding, *verdicts), engines in sorted(rows.items())
    )
    reasons = defaultdict[str, list[str]](list)
    for finding, reason in elsewhere(entries).items():
        if finding not in found:
            reasons[reason].append(finding)
    return text + ELSEWHERE + "".join(f"- {reason}: {', '.join(sorted(ids))}\n" for reason, ids in reasons.items())


def elsewhere(entries: Iterable[Entry]) -> dict[str, str]:
    """Why audits of the models of runs on this host may not meet a finding."""
    of_finding = defaultdict[str, list[Entry]](list)
    for entry in entries:
        of_finding[entry.id].append(entry)
    return {finding: _reason(ones) for finding, ones in of_finding.items()}


def _reason(entries: Sequence[Entry]) -> str:
    if not any(entry.applies(host()) for entry in entries):
        return "on other hosts"
    alone = "only networks show them apart, and `tests/audit/causes.py` has one for each"
    if not any(entry.where for entry in entries):
        return alone
    if all(backends_of(entry) <= OTHERS for entry in entries):
        return "about ExecuTorch, the quantizers of PT2E and torchao, of which this page audits no networks"
    if not any(entry.where and not entry.on_further_inputs for entry in entries):
        return alone
    checks = frozenset().union(*(entry.check for entry in entries))
    if any(entry.undefined for entry in entries) or "crashes" in checks:
        return "undefined results and crashes, which come and go"
    if checks & BLAMED:
        return "what only training or violated constraints show"
    return "what only repetitions, the memory of kernels, constraints or matching show"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Audit networks that have the known findings.")
    parser.add_argument("backends", nargs="*", choices=[[], *BACKENDS], metavar="BACKEND")
    parser.add_argument("--write", action="store_true", help="write docs/known-networks.md")
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    results = []
    for name in arguments.backends or BACKENDS:
        for one in outcomes(name):
            results.append(one)
            print(
                f"{one.shown.finding}@{one.shown.engine}: {one.alone}, {one.in_company}, {one.twin or '–'}", flush=True
            )
            if not one.right:
                print("".join(f"    {text}\n" for text in one.said), end="", flush=True)
    if arguments.write:
        with replacing(PAGE) as aside:
            aside.write_text(page(results, load()), encoding="utf-8")
    wrong = [one for one in results if not one.right]
    print(f"{len(results)} findings on engines, {len(wrong)} of them with a wrong verdict")
    return int(bool(wrong))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UsageError as error:
        sys.exit(f"error: {error}")

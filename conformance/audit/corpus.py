"""Audits of the corpus: every public network on every engine, several at a time."""

import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass

import torch

from conformance.errors import UsageError
from conformance.host.isolation import Death, Raised, interrupts_held, run_isolated
from conformance.networks.zoo import network as network_named
from conformance.results.audits import Audit

from .auditing import AUDIT_SECONDS, Settings, audit_engines, claims_for
from .network import Network, network


@dataclass(frozen=True)
class Job:
    """A network of the corpus by name, and the engines to audit it on."""

    name: str
    engines: tuple[str, ...]
    settings: Settings


def audited(jobs: Sequence[Job], workers: int) -> Iterator[list[Audit]]:
    """Yield the audits of each network as they are completed, in so many processes."""
    if workers <= 1 or len(jobs) <= 1:
        yield from map(_audited, jobs)
        return
    with interrupts_held() as handler:
        restored = (signal.SIGINT, handler)
        pool = ProcessPoolExecutor(workers, multiprocessing.get_context("fork"), signal.signal, restored)
        submitted = [pool.submit(_audited, job) for job in jobs]
    try:
        for done in as_completed(submitted):
            yield done.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _audited(job: Job) -> list[Audit]:
    """The audits of a network. Its packages are imported in a child, whose death costs one network."""
    torch.set_num_threads(1)
    (outcome,) = run_isolated([job], _in_child, AUDIT_SECONDS * len(job.engines))
    if isinstance(outcome, Raised):
        raise RuntimeError(f"the suite itself fails on {job.name}, which is our fault:\n{outcome.traceback}")
    if isinstance(outcome, Death):
        failure = f"the process dies ({outcome.reason}) outside of any engine"
        return [Audit(job.name, engine, claims_for(engine).name, failure=failure) for engine in job.engines]
    if isinstance(outcome.value, str):
        raise UsageError(outcome.value)
    return outcome.value


def _in_child(job: Job) -> list[Audit] | str:
    """The audits of a network, or the message of an error of usage, such as a package that is not installed."""
    try:
        return audit_engines(built(job.name), job.engines, job.settings)
    except UsageError as error:
        return str(error)


def built(name: str) -> Network:
    """A network of the corpus with its batches. Raises UsageError if it is unknown or its package is not installed."""
    one = network_named(name)
    return network(name, one.build(), one.batches(), f"network {name}")

"""Audits of the corpus: every public network on every engine, several at a time."""

import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial

import torch

from conformance.errors import UsageError
from conformance.host.isolation import Death, Raised, interrupts_held, run_isolated
from conformance.networks.zoo import network as network_named
from conformance.results.audits import Audit

from .auditing import AUDIT_SECONDS, Settings, audit_engines, claims_for
from .network import Network, network


def audited(names: Sequence[str], engines: Sequence[str], settings: Settings, workers: int) -> Iterator[list[Audit]]:
    """Yield the audits of each network of the corpus as they are completed, in so many processes."""
    audits_of = partial(_audits_of, engines=engines, settings=settings)
    if workers <= 1 or len(names) <= 1:
        yield from map(audits_of, names)
        return
    with interrupts_held() as handler:
        restored = (signal.SIGINT, handler)
        pool = ProcessPoolExecutor(workers, multiprocessing.get_context("fork"), signal.signal, restored)
        submitted = [pool.submit(audits_of, name) for name in names]
    try:
        for done in as_completed(submitted):
            yield done.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _audits_of(name: str, engines: Sequence[str], settings: Settings) -> list[Audit]:
    """The audits of a network. Its packages are imported in a child, whose death costs one network."""
    torch.set_num_threads(1)
    (outcome,) = run_isolated([name], partial(_in_child, engines, settings), AUDIT_SECONDS * len(engines))
    if isinstance(outcome, Raised):
        raise RuntimeError(f"the suite itself fails on {name}, which is our fault:\n{outcome.traceback}")
    if isinstance(outcome, Death):
        failure = f"the process dies ({outcome.reason}) outside of any engine"
        return [Audit(name, engine, claims_for(engine).name, failure=failure) for engine in engines]
    if isinstance(outcome.value, str):
        raise UsageError(outcome.value)
    return outcome.value


def _in_child(engines: Sequence[str], settings: Settings, name: str) -> list[Audit] | str:
    """The audits of a network, or the message of an error of usage, such as a package that is not installed."""
    try:
        return audit_engines(built(name), engines, settings)
    except UsageError as error:
        return str(error)


def built(name: str) -> Network:
    """A network of the corpus with its batches. Raises UsageError if it is unknown or its package is not installed."""
    one = network_named(name)
    return network(name, one.build(), one.batches(), f"network {name}")

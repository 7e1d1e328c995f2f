"""Audits of the corpus: every public network on every engine, several at a time."""

import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from typing import Any

import torch

from conformance.errors import UsageError
from conformance.host.isolation import Death, Raised, interrupts_held, run_isolated
from conformance.networks.training import CannotBeTrained, train
from conformance.networks.zoo import network as network_named
from conformance.results.audits import Audit

from .isolated import AUDIT_SECONDS, Way
from .network import Network, network


def audited(names: Sequence[str], ways: Sequence[Way], workers: int, steps: int = 0) -> Iterator[list[Audit]]:
    """Yield the audits of each network of the corpus as they are completed, in so many processes.

    Networks with random weights are trained for so many steps before.
    """
    if workers <= 1 or len(names) <= 1:
        for name in names:
            yield _audits_of(name, ways, steps)
        return
    with interrupts_held() as handler:
        pool = ProcessPoolExecutor(workers, multiprocessing.get_context("fork"), _begin, (handler, ways))
        submitted = [pool.submit(_audits_in_pool, name, steps) for name in names]
    try:
        for done in as_completed(submitted):
            yield done.result()
    finally:
        pool.shutdown(cancel_futures=True)


_ways: list[Way] = []
"""The ways of a process of a pool. It inherits them, because quantizers cannot be pickled."""


def _begin(handler: Any, ways: Sequence[Way]) -> None:
    signal.signal(signal.SIGINT, handler)
    _ways[:] = ways


def _audits_in_pool(name: str, steps: int) -> list[Audit]:
    return _audits_of(name, _ways, steps)


def _audits_of(name: str, ways: Sequence[Way], steps: int) -> list[Audit]:
    """The audits of a network. Its packages are imported in a child, whose death costs one network."""
    torch.set_num_threads(1)
    (outcome,) = run_isolated([name], partial(_in_child, ways, steps), AUDIT_SECONDS * len(ways))
    if isinstance(outcome, Raised):
        raise RuntimeError(f"the suite itself fails on {name}, which is our fault:\n{outcome.traceback}")
    if isinstance(outcome, Death):
        failure = f"the process dies ({outcome.reason}) outside of any engine"
        return [Audit(name, way.engine, way.backend, failure=failure) for way in ways]
    if isinstance(outcome.value, str):
        raise UsageError(outcome.value)
    return outcome.value


def _in_child(ways: Sequence[Way], steps: int, name: str) -> list[Audit] | str:
    """The audits of a network, or the message of an error of usage, such as a package that is not installed."""
    try:
        subject = built(name, steps)
        return [way.audit(subject, lambda _: None) for way in ways]
    except CannotBeTrained as error:
        return [Audit(name, way.engine, way.backend, failure=str(error)) for way in ways]
    except UsageError as error:
        return str(error)


def built(name: str, steps: int = 0) -> Network:
    """A network of the corpus with its batches. One with random weights is trained for so many steps.

    Raises UsageError if it is unknown or its package is not installed, CannotBeTrained.
    """
    one = network_named(name)
    model = one.build()
    if steps and not one.trained:
        train(model, one, steps)
    return network(name, model, one.batches(), f"network {name}")

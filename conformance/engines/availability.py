"""Availability of engines on this host."""

from conformance.host.isolation import Death, Done, run_isolated
from conformance.host.threads import thread_count

from .registry import engine


def probe(name: str) -> str | None:
    """Return why an engine cannot run on this host, or None if it can. It is probed in a child, which may crash."""
    with thread_count(1):  # a child has no threads of a pool, and would wait for them
        engine(name).warm_up()
        (outcome,) = run_isolated([name], lambda one: engine(one).unavailable())
    if isinstance(outcome, Done):
        return outcome.value
    return outcome.reason if isinstance(outcome, Death) else outcome.traceback.strip().splitlines()[-1]

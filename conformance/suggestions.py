"""Nearest known names for an unknown one."""

from collections.abc import Iterable
from difflib import get_close_matches

from conformance.errors import UsageError


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return `did you mean A or B` with the known names most similar to `name`, at most three; empty if none is similar.

    `cutoff` is the least similarity from 0 to 1, as in `difflib.get_close_matches`.
    """
    nearest = get_close_matches(name, list(known), n=3, cutoff=cutoff)
    return f"did you mean {' or '.join(nearest)}" if nearest else ""


def unknown(kind: str, name: str, known: Iterable[str], otherwise: str = "") -> UsageError:
    """Return the error for a `name` of some `kind` that is not `known`, with the nearest names and all choices."""
    known = list(known)
    suggestion = did_you_mean(name, known)
    choose = f"{suggestion}? Choose" if suggestion else "choose"
    return UsageError(f"unknown {kind} {name!r}: {choose} from {', '.join(known)}{otherwise}")

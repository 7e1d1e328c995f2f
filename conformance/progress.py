"""A bar on stderr for what takes more than a few seconds; nothing where stderr is no terminal."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from tqdm import tqdm

T = TypeVar("T")


def progress(items: Iterable[T], what: str, total: int | None = None) -> Iterator[T]:
    """Yield the items, and say on a terminal how many are done and how long the rest will take.

    `total` is how many there are where `items` cannot say it."""
    yield from tqdm(items, desc=what, total=total, disable=None, leave=False, delay=1.0)

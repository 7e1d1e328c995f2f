"""A progress bar on stderr, shown only on a terminal and only for loops that take longer than a second."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from tqdm import tqdm

T = TypeVar("T")


def progress(items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
    """Yield the items, and show on a terminal how many are done and how long the rest will take.

    `total` is the number of items, needed if `items` has no length.
    """
    yield from tqdm(items, desc=description, total=total, disable=None, leave=False, delay=1.0)

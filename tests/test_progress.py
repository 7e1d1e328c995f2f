"""The progress bar is shown on a terminal only."""

import io

import pytest

from conformance.progress import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_items_are_unchanged_and_counted_on_a_terminal_only(
    stream: type[io.StringIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter(range(0, 1000, 10))
    monkeypatch.setattr("tqdm.std.time", lambda: next(times))
    monkeypatch.setattr("sys.stderr", stderr := stream())
    assert [*progress(iter("abc"), "letters", 3)] == ["a", "b", "c"]
    assert ("letters" in stderr.getvalue()) == (stream is Terminal)
    assert ("2/3" in stderr.getvalue()) == (stream is Terminal)

"""A bar where somebody looks, and nothing elsewhere."""

import io

import pytest

from conformance.progress import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_items_come_as_they_are_and_a_terminal_alone_sees_how_many(
    stream: type[io.StringIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter(range(0, 1000, 10))
    monkeypatch.setattr("tqdm.std.time", lambda: next(now))
    monkeypatch.setattr("sys.stderr", shown := stream())
    assert [*progress(iter("abc"), "letters", 3)] == ["a", "b", "c"]
    assert ("letters" in shown.getvalue()) == (stream is Terminal)
    assert ("2/3" in shown.getvalue()) == (stream is Terminal)

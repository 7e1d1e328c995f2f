"""Shortcuts are named, have reasons, and can be switched off one by one or all together."""

import pytest

from conformance.shortcuts import TABLE, enabled, without

FIRST, SECOND = TABLE[0].name, TABLE[1].name


def test_names_are_unique_and_every_shortcut_has_a_reason() -> None:
    assert len({shortcut.name for shortcut in TABLE}) == len(TABLE)
    assert all(shortcut.reason for shortcut in TABLE)


def test_shortcuts_are_switched_off_in_a_scope() -> None:
    with without(FIRST):
        assert not enabled(FIRST)
        assert enabled(SECOND)
        with without(SECOND):
            assert not enabled(FIRST)
            assert not enabled(SECOND)
        assert enabled(SECOND)
    assert enabled(FIRST)
    with without():
        assert not any(enabled(shortcut.name) for shortcut in TABLE)


def test_an_unknown_shortcut_is_an_error() -> None:
    with pytest.raises(KeyError, match="unheard"):
        enabled("unheard")
    with pytest.raises(KeyError, match="unheard"), without("unheard"):
        pass

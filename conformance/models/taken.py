"""The shortcuts that replace functions of torch. The suite's own children take them; other processes keep their torch."""

from conformance.shortcuts import NAMES, enabled

from . import graph_modules, torchs

_taken = False


def take_shortcuts() -> None:
    """Replace functions of torch in this process, once. Call it in children that only judge; with all shortcuts off, torch
    stays as it is."""
    global _taken
    if _taken or not any(map(enabled, NAMES)):
        return
    _taken = True
    graph_modules.replace_functions()
    torchs.replace_functions()

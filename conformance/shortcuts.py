"""Shortcuts: work that is done once where it is known to come out the same, each with its reason.

No shortcut changes a row. Tests judge a sample with and without each of them, `--no-shortcuts` switches all of them off for
an invocation, and `tox -e repeat` compares all rows of such an invocation with those of others.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Shortcut:
    """What is left out, the reason why rows stay the same, and whether functions of torch are replaced for it."""

    name: str
    reason: str
    replaces: bool = False


TABLE = (
    Shortcut(
        "tables",
        "torch derives a dozen tables from a config whenever it prepares or converts a model, and the config does not change "
        "after it is loaded",
        replaces=True,
    ),
    Shortcut(
        "code",
        "torch generates and compiles the code of a graph after each pass over it, and for each copy: only that of the last "
        "graph is called, and copies have the same",
        replaces=True,
    ),
    Shortcut(
        "copies",
        "torch copies models attribute by attribute, and QConfigs with and for each module: most attributes of a module are "
        "empty containers, and QConfigs are immutable constructors, which behave like their copies, so runs with the same "
        "recipe have the same one",
        replaces=True,
    ),
    Shortcut(
        "tracing",
        "FX sets two methods of nn.Module for the time of a trace, and Python then updates all subclasses, graph modules "
        "among them: methods that call the last of a list do the same; and it wraps the functions of `math`, always alike",
        replaces=True,
    ),
    Shortcut(
        "exported patterns",
        "torchao and quantizers of PT2E export the patterns that they search for in each prepare, which takes two seconds: "
        "the graph of a pattern depends on its code and on what it closes over",
    ),
    Shortcut(
        "decompositions",
        "lowering for x86 traces the Python code of a graph, and collects and overrides 1,700 decompositions twice: what is "
        "composite in torch does not depend on the model, and the code of a graph is its nodes",
    ),
    Shortcut(
        "messages",
        "a graph module whose code raises imports torch's compiler to print where, to nobody, and then raises the same error",
        replaces=True,
    ),
    Shortcut(
        "conversion",
        "`convert_fx` lowers the model that `convert_to_reference_fx` returns, which does not depend on the engine",
    ),
    Shortcut(
        "reference",
        "the reference model computes in float, whatever the engine: runs of one case on several engines have the same",
    ),
    Shortcut(
        "ablation",
        "if the default form of a claim is prepared differently without the claim's entry, the entry takes effect, and does "
        "so for every form of the pattern in which prepare changes anything",
    ),
    Shortcut(
        "state_dict",
        "whether a state is saved and loaded whole depends on the structure of the lowered model: a structure whose state "
        "came back whole is not reloaded again",
    ),
    Shortcut(
        "torch.jit",
        "what TorchScript makes of a lowered model depends on the source of the model, not on data: one that came back the "
        "same is not compiled again",
    ),
    Shortcut(
        "templates",
        "models of the same source, QConfig and flow, and those that are exported of inputs of the same shapes and formats, "
        "differ in tensors alone, and prepare copies parameters and buffers unless it folds a batch norm into them: the "
        "prepared model of one with another's tensors is the other's",
    ),
    Shortcut(
        "remembered-sources",
        "the source of a function, and the types that its annotations name, do not change while it exists",
    ),
    Shortcut(
        "draws",
        "a bounded search draws the same samples every time until one deviates, and engines with the same recipes draw the "
        "same: samples are drawn once and judged on all engines together, and searched for the smallest only if one deviates",
    ),
)
"""Every shortcut."""

_OFF: set[str] = set()


def enabled(name: str) -> bool:
    """Whether a shortcut is taken. Raises KeyError for a name that is not in the table."""
    if name not in NAMES:
        raise KeyError(name)
    return name not in _OFF


NAMES = frozenset(shortcut.name for shortcut in TABLE)


def switch_off(*names: str) -> None:
    """Switch off shortcuts in this process and in those that it forks."""
    _OFF.update(names)


@contextmanager
def without(*names: str) -> Iterator[None]:
    """Switch off shortcuts in this scope: all of them if none is named. Raises KeyError like `enabled`."""
    before = set(_OFF)
    for name in names:
        enabled(name)
    _OFF.update(names or NAMES)
    try:
        yield
    finally:
        _OFF.clear()
        _OFF.update(before)

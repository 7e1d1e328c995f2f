"""The text of a least script, from the lines that show a deviation, and what such lines do when they are executed."""

import ast
import contextlib
import io
import textwrap
from typing import Any

import torch

from conformance.host import poison
from conformance.host.cpu import ISA_LIMITS
from conformance.repro.inline import IMPORTS, free

from .lines import WIDTH, imported


def with_class(definition: str, lines: str) -> str:
    """Lines with another class, before that of the model if there is one."""
    start, _, rest = lines.partition("\n\n\n")
    return f"{start}\n\n\n{definition}\n\n{rest}" if rest else f"\n{definition}\n\n{lines}"


def ending(check: str, condition: str, text: str) -> str:
    """The last lines: what was expected, what there is instead, and the verdict as the exit status."""
    return (
        'print(f"expected {expected}\\ngot      {got}")\n'
        f"deviates = {condition}\n"
        f'print("DEVIATES {check}: {text}" if deviates else "CONFORMS")\n'
        "raise SystemExit(bool(deviates))\n"
    )


def imports(body: str) -> str:
    """The import statements that a body needs: the standard library, torch, then what comes from torch."""
    names = free(body)
    table = {**IMPORTS, **imported(names)}
    statements = {table[name] for name in names if name in table}
    whole = sorted(one for one in statements if one.startswith("import ") and " as " not in one)
    first = [one for one in whole if not one.startswith("import torch")]
    parts: dict[str, list[str]] = {}
    for statement in sorted(statements - {*whole}):
        head, separator, name = statement.partition(" import ")
        parts.setdefault(head if separator else statement, []).extend([name] if separator else [])
    rest = [f"{head} import {', '.join(names)}" if names else head for head, names in parts.items()]
    rest.sort(key=lambda statement: not statement.startswith("import "))
    return "\n".join([*first, *([""] if first else []), "import torch", *rest]) + "\n"


def whole(title: str, expectation: str, body: str, isa: str | None) -> str:
    """The text of a script. `isa` limits the instruction set as `--isa` does."""
    limits = f"import os\n\nos.environ.update({ISA_LIMITS[isa]!r})  # read when torch loads\n\n" if isa else ""
    described = f"{title}\n{expectation}".replace("\\", "\\\\").replace('"""', "'''")
    text = f'"""{described}"""\n\n{limits}{imports(body)}\n{folded(body)}'
    return text.replace("\n\n\n", "\n\n").replace("\n\n    def ", "\n    def ")  # no more lines than it needs


def folded(body: str) -> str:
    """Lines in which a long one without a string continues, inside of its brackets, on further lines."""
    lines = []
    for line in body.splitlines():
        long = len(line) > WIDTH and '"' not in line and "#" not in line
        inner = " " * (len(line) - len(line.lstrip()) + 4)
        parts = textwrap.wrap(line, WIDTH, subsequent_indent=inner, break_long_words=False, drop_whitespace=True)
        lines += parts if long and _parses("\n".join(parts)) else [line]
    return "\n".join(lines) + "\n"


def _parses(line: str) -> bool:
    try:
        ast.parse(textwrap.dedent(line).rstrip(","))
    except SyntaxError:
        return False
    return True


def executed(body: str, memory: int = 0x5A) -> tuple[str, dict[str, Any]]:
    """Execute lines of a script in this process. Returns what they print and the names that they bind.

    New memory holds `memory` in every byte, unless the script fills it itself. Raises their exceptions, but for SystemExit.
    """
    scope: dict[str, Any] = {"__name__": "__main__"}
    printed = io.StringIO()
    try:
        with (
            contextlib.redirect_stdout(printed),
            contextlib.suppress(SystemExit),
            torch.enable_grad(),
            poison.fresh_memory_holds(memory),
        ):
            exec(compile(imports(body) + body, "<script>", "exec"), scope)
    finally:
        torch.set_num_threads(1)
    return printed.getvalue(), scope


DIES = "dies here, or else prints CONFORMS"
"""What a script prints before the call that ends its process."""


def shows(printed: str, check: str) -> bool:
    """Whether what a script has printed ends with the deviation of a check, or with the announcement of a crash."""
    last = (printed.strip().splitlines() or [""])[-1]
    return last.startswith(DIES if check == "crashes" else f"DEVIATES {check}:")

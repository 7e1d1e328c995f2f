"""Reductions of candidates: smaller sizes, fewer options, simpler data, fewer lines."""

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch

from .candidate import Candidate, Data, rewritten

Reduction = Callable[[Candidate], Iterator[Candidate]]
"""Yields candidates that are smaller than one, the smallest first."""


def sequential(candidate: Candidate) -> Iterator[Candidate]:
    """Written without a class."""
    if not candidate.sequential and candidate.chain is not None:
        yield replace(candidate, sequential=True)


def one_data(candidate: Candidate) -> Iterator[Candidate]:
    """Calibrated with the inputs."""
    if candidate.calibration is not None:
        yield replace(candidate, calibration=None)


def plain_layouts(candidate: Candidate) -> Iterator[Candidate]:
    """Contiguous inputs."""
    if any(one.layout != "contiguous" for one in candidate.inputs):
        inputs = tuple(replace(one, layout="contiguous") for one in candidate.inputs)
        yield replace(candidate, inputs=inputs)


def integers_of(lines: tuple[str, ...]) -> list[int]:
    """The integers above 1 in lines of source, each once."""
    nodes = [node for line in lines for node in ast.walk(ast.parse(line))]
    found = (node.value for node in nodes if isinstance(node, ast.Constant) and type(node.value) is int)
    return [*dict.fromkeys(value for value in found if value > 1)]


def _replaced(lines: tuple[str, ...], old: int, new: int) -> tuple[str, ...]:
    """Lines with another integer in place of one."""

    def change(node: ast.AST) -> ast.AST | None:
        equal = isinstance(node, ast.Constant) and type(node.value) is int and node.value == old
        return ast.Constant(new) if equal else None

    return tuple(rewritten(line, change) for line in lines)


def _resized(candidate: Candidate, old: int, new: int, axis: int | None = None) -> Candidate:
    """The candidate with axes of a size, at one place counted from the last or anywhere, in another size."""

    def of(one: Data) -> Data:
        rank = len(one.shape)
        changed = (
            new if size == old and axis in (None, place - rank) else size for place, size in enumerate(one.shape)
        )
        return one.resized(tuple(changed))

    calibration = None if candidate.calibration is None else tuple(map(of, candidate.calibration))
    return replace(candidate, inputs=tuple(map(of, candidate.inputs)), calibration=calibration)


def _smaller(value: int) -> list[int]:
    return [*dict.fromkeys(size for size in (1, 2, 3, 4, value // 4, value // 2, value - 1) if 0 < size < value)]


def sizes(candidate: Candidate) -> Iterator[Candidate]:
    """An integer of the model together with the axes of that size, then an axis alone."""
    lines = (*candidate.init, *candidate.forward)
    everywhere = [size for one in candidate.inputs for size in one.shape if size > 1]
    for old in dict.fromkeys([*sorted(everywhere, reverse=True), *integers_of(lines)]):
        for new in _smaller(old):
            if old in integers_of(lines):
                both = _resized(candidate, old, new)
                yield replace(
                    both, init=_replaced(candidate.init, old, new), forward=_replaced(candidate.forward, old, new)
                )
            for axis in sorted({p - len(d.shape) for d in candidate.inputs for p, s in enumerate(d.shape) if s == old}):
                yield _resized(candidate, old, new, axis)


def options(candidate: Candidate) -> Iterator[Candidate]:
    """Without an argument of a call, or with a smaller integer of the model alone."""
    for init in _shorter(candidate.init):
        yield replace(candidate, init=init)
    for forward in _shorter(candidate.forward):
        yield replace(candidate, forward=forward)


def _shorter(lines: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Lines of which one has an argument less, or a smaller integer."""
    for number, line in enumerate(lines):
        smaller = [(old, new) for old in integers_of((line,)) for new in _smaller(old)]
        reduced = (_replaced((line,), old, new)[0] for old, new in smaller)
        for shorter in (*_without_keyword(line), *_without_last(line), *reduced):
            yield (*lines[:number], shorter, *lines[number + 1 :])


def _without_keyword(line: str) -> Iterator[str]:
    count = sum(len(node.keywords) for node in ast.walk(ast.parse(line)) if isinstance(node, ast.Call))
    for number in range(count):
        tree = ast.parse(line)
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        call, keyword = [(call, keyword) for call in calls for keyword in call.keywords][number]
        if keyword.arg != "training":  # without which functions of torch train
            call.keywords.remove(keyword)
            yield ast.unparse(tree)


def _without_last(line: str) -> Iterator[str]:
    """Without the last argument of a call that has several."""
    calls = [node for node in ast.walk(ast.parse(line)) if isinstance(node, ast.Call)]
    for number, call in enumerate(calls):
        if len(call.args) > 1:
            tree = ast.parse(line)
            shorter = [node for node in ast.walk(tree) if isinstance(node, ast.Call)][number]
            shorter.args.pop()
            yield ast.unparse(tree)


def returns(candidate: Candidate) -> Iterator[Candidate]:
    """With one value of those that the model returns."""
    *before, last = candidate.forward
    value = getattr(ast.parse(last).body[0], "value", None)
    if isinstance(value, ast.Tuple):
        for part in value.elts:
            yield replace(candidate, forward=(*before, f"return {ast.unparse(part)}"))


def parameters(candidate: Candidate) -> Iterator[Candidate]:
    """With simpler parameters."""
    for fill in ("own", "ones", "halves", "linspace"):
        if candidate.parameters == fill:
            return
        yield replace(candidate, parameters=fill)
    assert not isinstance(candidate.parameters, str)
    for number, (name, value) in enumerate(candidate.parameters):
        before, after = candidate.parameters[:number], candidate.parameters[number + 1 :]
        yield replace(candidate, parameters=(*before, *after) or "own")
        for constant in (0.0, 1.0):
            simple = torch.full_like(value, constant)
            if torch.equal(simple, value):
                break
            yield replace(candidate, parameters=(*before, (name, simple), *after))


def simple_data(candidate: Candidate) -> Iterator[Candidate]:
    """With inputs in simpler forms."""
    for position, one in enumerate(candidate.inputs):
        for form in ("zeros", "ones", "linspace") if not one.limit else ("zeros", "modulo"):
            changed = replace(one, form=form, values=None, low=-1.0, high=1.0)
            if changed == one:
                break
            inputs = (*candidate.inputs[:position], changed, *candidate.inputs[position + 1 :])
            yield replace(candidate, inputs=inputs)


def calm(candidate: Candidate) -> Iterator[Candidate]:
    """Without copies of inputs, and without other threads."""
    if candidate.clones:
        yield replace(candidate, clones=False)
    if candidate.threads > 1:
        yield replace(candidate, threads=1)


def usual_mapping(candidate: Candidate) -> Iterator[Candidate]:
    """With the backend's default QConfig."""
    for number, (qconfig, mapping) in enumerate(candidate.simpler):
        yield replace(candidate, qconfig=qconfig, mapping=mapping, simpler=candidate.simpler[:number])


def unwrapped(candidate: Candidate) -> Iterator[Candidate]:
    """Without one of the calls of the model, in whose place is its first argument."""
    for number, line in enumerate(candidate.forward):
        calls = [node for node in ast.walk(ast.parse(line)) if isinstance(node, ast.Call) and node.args]
        for place in sorted(map(_place, calls)):
            shorter = rewritten(line, partial(_first_argument, place=place))
            yield replace(candidate, forward=(*candidate.forward[:number], shorter, *candidate.forward[number + 1 :]))


def _place(call: ast.Call) -> tuple[int, int]:
    """The columns of a call, by which an outer call comes before those in it."""
    return call.col_offset, -(call.end_col_offset or 0)


def _first_argument(node: ast.AST, place: tuple[int, int]) -> ast.AST | None:
    """The first argument of the call at a place; None for another node."""
    return node.args[0] if isinstance(node, ast.Call) and _place(node) == place else None


def short_observers(candidate: Candidate) -> Iterator[Candidate]:
    """With arguments of observers that are their defaults left out."""
    removals = (
        ", quant_min=0, quant_max=255",
        ", quant_min=-127, quant_max=127",
        ", quant_min=-128, quant_max=127",
        "dtype=torch.quint8, qscheme=torch.per_tensor_affine",
    )
    shorter = candidate.qconfig
    for removal in removals:
        shorter = shorter.replace(removal, "")
    shorter = shorter.replace("(, ", "(").replace(".with_args()", "")
    if shorter != candidate.qconfig:
        yield replace(candidate, qconfig=shorter)


REDUCTIONS: tuple[Reduction, ...] = (
    one_data,
    returns,
    sequential,
    plain_layouts,
    parameters,
    calm,
    simple_data,
    sizes,
    options,
    usual_mapping,
    short_observers,
    simple_data,
    parameters,
)
"""Reductions in the order in which they are tried."""

OF_STRUCTURE: tuple[Reduction, ...] = (unwrapped, sequential)
"""Further reductions where the deviation itself says of which operator it is."""

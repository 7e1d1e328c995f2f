"""Renderers of findings about sweeps over all codes: the turns that show them, executed on the lowered model."""

from collections.abc import Iterable, Iterator

from conformance.properties.codes.sweeps import input_grid, sweeps_pairs
from conformance.results.findings import Finding
from conformance.results.findings.codes import (
    SweptCodes,
    SweptElement,
    SweptOrder,
    SweptPlaces,
    SweptQparams,
    SweptRaises,
    SweptScale,
    TensorQparams,
)

from .case import Case, Once, Renderer, guarded

SWEPT = Once("swept = returning_codes(lowered)\n")


def _turn(case: Case, turn: int, operands: Iterable[TensorQparams], output: TensorQparams) -> str:
    """The expression of the quantized output in one turn."""
    grid, pairs = input_grid(case.run), sweeps_pairs(case.run)
    count, scales = grid.high - grid.low + 1, {operand.name: operand for operand in operands}
    rendered = []
    for number, (name, spec) in enumerate(case.run.model.operands):
        codes = f"numbers({count}, {spec.shape}, {turn}, {number}, {pairs})" + (f" + {grid.low}" if grid.low else "")
        rendered.append(f'    "{name}": ({codes}, {scales[name].scale!r}, {scales[name].zero_point}),\n')
    return f"execute_turn(swept, {{\n{''.join(rendered)}}}, ({output.scale!r}, {output.zero_point}))"


def _element(case: Case, element: SweptElement, name: str) -> str:
    """Lines that bind the code of an element to a name."""
    result = _turn(case, element.turn, element.operands, element.got.tensor)
    return f"result = {result}\n{name} = int(result.int_repr()[{element.index}])\n"


def _codes(case: Case, finding: SweptCodes) -> Iterator[str]:
    yield SWEPT
    for element in finding.elements:
        allowed = f"{element.low} <= got <= {element.high}"
        yield (
            f"{_element(case, element, 'got')}if not {allowed}:\n"
            f'    deviates("{finding.check}", f"{{got}}, exact arithmetic gives {element.exact:.9g}")\n'
        )


def _places(case: Case, finding: SweptPlaces) -> Iterator[str]:
    yield SWEPT
    yield (
        f"{_element(case, finding.first, 'first')}{_element(case, finding.second, 'second')}if first != second:\n"
        f'    deviates("{finding.check}", f"the same codes give {{first}} at {finding.first.index} and {{second}} at '
        f'{finding.second.index}")\n'
    )


def _order(case: Case, finding: SweptOrder) -> Iterator[str]:
    yield SWEPT
    relation = "<=" if finding.first.exact <= finding.second.exact else ">="
    yield (
        f"{_element(case, finding.first, 'first')}{_element(case, finding.second, 'second')}"
        f"if not first {relation} second:\n"
        f'    deviates("{finding.check}", f"one code gives {{first}}, the next one {{second}}")\n'
    )


def _qparams(case: Case, finding: SweptQparams) -> Iterator[str]:
    yield SWEPT
    expected = finding.expected
    yield (
        f"result = {_turn(case, finding.turn, finding.operands, expected)}\n"
        f"if (result.q_scale(), result.q_zero_point()) != ({expected.scale!r}, {expected.zero_point}):\n"
        f'    deviates("{finding.check}", f"scale {{result.q_scale()}}, zero point {{result.q_zero_point()}}")\n'
    )


def _raises(case: Case, finding: SweptRaises) -> Iterator[str]:
    yield SWEPT
    call = _turn(case, finding.turn, finding.operands, finding.output)
    yield guarded(finding.check, "execution", f"{call}\n")


def _scale(case: Case, finding: SweptScale) -> Iterator[str]:
    yield SWEPT
    element = finding.element
    yield (
        f"{_turn(case, element.turn, element.operands, finding.before)}\n"
        f"{_element(case, element, 'got')}if not {element.low} <= got <= {element.high}:\n"
        f'    deviates("{finding.check}", f"{{got}} after another scale of the output, not {element.exact:.9g}")\n'
    )


RENDERERS: dict[type[Finding], Renderer] = {
    SweptCodes: _codes,
    SweptPlaces: _places,
    SweptOrder: _order,
    SweptQparams: _qparams,
    SweptRaises: _raises,
    SweptScale: _scale,
}
"""Renderers of findings of the profile `codes`."""

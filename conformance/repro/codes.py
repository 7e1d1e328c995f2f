"""Renderers of findings about sweeps over all codes: the turns that show them, on models lowered once or for each turn."""

from collections.abc import Iterable, Iterator

from conformance.configs.engines import ENGINE_TABLE
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
    SweptTies,
    TensorQparams,
)

from .apis import lines_of
from .case import Case, Once, Renderer, guarded
from .programs import PROGRAMS, TRACED


def _swept(case: Case) -> Once:
    """The lines that bind `swept`, or define `turn` for an engine whose programs have their qparams as constants."""
    run = case.run
    if ENGINE_TABLE[run.engine].native:
        return Once("swept = returning_codes(lowered)\n")
    if (program := PROGRAMS.get(run.engine)) is not None:
        executed = lines_of(run).converted("qparams") + program.lower + program.execute
    else:
        calibrated = "set_observed(prepared, qparams)"
        executed = f"lowered = engine.compile(engine.convert({calibrated}, backend_config), given)\n{TRACED}"
    body = executed.replace("given = inputs()\n", "").replace("inputs()", "given")
    layouts = {name: spec.layout for name, spec in run.model.operands if spec.layout != "contiguous"}
    laid = "".join(f'given["{name}"] = laid_out(given["{name}"], "{layout}")\n' for name, layout in layouts.items())
    body = (
        'qparams = {name: operand[1:] for name, operand in operands.items()} | {"output": output}\n'
        f"given = {{name: dequantized(*operand) for name, operand in operands.items()}}\n{laid}"
        f"given = tuple(given.values())\n{body}"
        "codes = trace.source(outputs[0])\n"
        "return codes_of(outputs[0], *output) if codes is None else codes\n"
    )
    indented = "".join(f"    {line}\n" for line in body.splitlines())
    doc = '    """The codes of the output of the model that is lowered with these scales and zero points."""\n'
    return Once(f"def turn(operands, output):\n{doc}{indented}")


def _turn(case: Case, turn: int, operands: Iterable[TensorQparams], output: TensorQparams) -> str:
    """The expression of the quantized output in one turn."""
    grid, pairs = input_grid(case.run), sweeps_pairs(case.run)
    count, scales = grid.high - grid.low + 1, {operand.name: operand for operand in operands}
    rendered = []
    for number, (name, spec) in enumerate(case.run.model.operands):
        codes = f"numbers({count}, {spec.shape}, {turn}, {number}, {pairs})" + (f" + {grid.low}" if grid.low else "")
        rendered.append(f'    "{name}": ({codes}, {scales[name].scale!r}, {scales[name].zero_point}),\n')
    call = "execute_turn(swept, " if ENGINE_TABLE[case.run.engine].native else "turn("
    return f"{call}{{\n{''.join(rendered)}}}, ({output.scale!r}, {output.zero_point}))"


def _element(case: Case, element: SweptElement, name: str) -> str:
    """Lines that bind the code of an element to a name."""
    result = _turn(case, element.turn, element.operands, element.got.tensor)
    return f"result = {result}\n{name} = int(result_codes(result)[{element.index}])\n"


def _codes(case: Case, finding: SweptCodes) -> Iterator[str]:
    yield _swept(case)
    for element in finding.elements:
        allowed = f"{element.low} <= got <= {element.high}"
        yield (
            f"{_element(case, element, 'got')}if not {allowed}:\n"
            f'    deviates("{finding.check}", f"{{got}}, exact arithmetic gives {element.exact:.9g}")\n'
        )


def _places(case: Case, finding: SweptPlaces) -> Iterator[str]:
    yield _swept(case)
    yield (
        f"{_element(case, finding.first, 'first')}{_element(case, finding.second, 'second')}if first != second:\n"
        f'    deviates("{finding.check}", f"the same codes give {{first}} at {finding.first.index} and {{second}} at '
        f'{finding.second.index}")\n'
    )


def _order(case: Case, finding: SweptOrder) -> Iterator[str]:
    yield _swept(case)
    relation = "<=" if finding.first.exact <= finding.second.exact else ">="
    yield (
        f"{_element(case, finding.first, 'first')}{_element(case, finding.second, 'second')}"
        f"if not first {relation} second:\n"
        f'    deviates("{finding.check}", f"one code gives {{first}}, the next one {{second}}")\n'
    )


def _qparams(case: Case, finding: SweptQparams) -> Iterator[str]:
    yield _swept(case)
    expected = finding.expected
    yield (
        f"result = {_turn(case, finding.turn, finding.operands, expected)}\n"
        f"if (result.q_scale(), result.q_zero_point()) != ({expected.scale!r}, {expected.zero_point}):\n"
        f'    deviates("{finding.check}", f"scale {{result.q_scale()}}, zero point {{result.q_zero_point()}}")\n'
    )


def _raises(case: Case, finding: SweptRaises) -> Iterator[str]:
    yield _swept(case)
    call = _turn(case, finding.turn, finding.operands, finding.output)
    yield guarded(finding.check, "execution", f"{call}\n")


def _scale(case: Case, finding: SweptScale) -> Iterator[str]:
    yield _swept(case)
    element = finding.element
    yield (
        f"{_turn(case, element.turn, element.operands, finding.before)}\n"
        f"{_element(case, element, 'got')}if not {element.low} <= got <= {element.high}:\n"
        f'    deviates("{finding.check}", f"{{got}} after another scale of the output, not {element.exact:.9g}")\n'
    )


def lowers_in_turns(case: Case) -> bool:
    """Whether all findings are about turns that lower the model themselves."""
    return not ENGINE_TABLE[case.run.engine].native and all(type(finding) in RENDERERS for finding in case.findings)


RENDERERS: dict[type[Finding], Renderer] = {
    **dict.fromkeys((SweptCodes, SweptTies), _codes),
    SweptPlaces: _places,
    SweptOrder: _order,
    SweptQparams: _qparams,
    SweptRaises: _raises,
    SweptScale: _scale,
}
"""Renderers of findings of the profile `codes`."""

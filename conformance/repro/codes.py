"""Sweeps over all codes in scripts: the turns that show them, on models lowered once or for each turn."""

from collections.abc import Iterable
from textwrap import indent

from conformance.cases.runs import Run
from conformance.configs.engines import ENGINE_TABLE
from conformance.engines.programs import PROGRAMS, TRACED
from conformance.properties.codes.sweeps import input_grid, sweeps_pairs
from conformance.results.findings import codes as findings
from conformance.results.findings.codes import TensorQparams

from .apis import lines_of
from .case import Case


def swept(case: Case) -> str:
    """The lines that bind `swept`, or define `turn` for an engine whose programs have their qparams as constants."""
    run = case.run
    if ENGINE_TABLE[run.engine].native:
        return "swept = returning_codes(lowered)\n"
    if (program := PROGRAMS.get(run.engine)) is not None:
        executed = lines_of(case).converted("qparams") + program.lowering("inputs()") + program.execute
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
    doc = '    """The codes of the output of the model that is lowered with these scales and zero points."""\n'
    return f"def turn(operands, output):\n{doc}{indent(body, '    ')}"


def turn(run: Run, turn: int, operands: Iterable[TensorQparams], output: TensorQparams) -> str:
    """The expression of the quantized output in one turn."""
    grid, pairs = input_grid(run), sweeps_pairs(run)
    count, scales = grid.high - grid.low + 1, {operand.name: operand for operand in operands}
    rendered = []
    for number, (name, spec) in enumerate(run.model.operands):
        codes = f"numbers({count}, {spec.shape}, {turn}, {number}, {pairs})" + (f" + {grid.low}" if grid.low else "")
        rendered.append(f'    "{name}": ({codes}, {scales[name].scale!r}, {scales[name].zero_point}),\n')
    call = "execute_turn(swept, " if ENGINE_TABLE[run.engine].native else "turn("
    return f"{call}{{\n{''.join(rendered)}}}, ({output.scale!r}, {output.zero_point}))"


def lowers_in_turns(case: Case) -> bool:
    """Whether all findings are about turns that lower the model themselves."""
    return not ENGINE_TABLE[case.run.engine].native and {type(one).__module__ for one in case.findings} <= {
        findings.__name__
    }

"""The reproduction script of a run whose module is quantized in place: torch and the library that quantizes, and no more."""

from collections.abc import Iterator

from conformance.cases.runs import Run
from conformance.cases.workflows import INDIVISIBLE, ZERO_ROW
from conformance.engines.registry import engine
from conformance.engines.workflows import EAGER, WorkflowEngine
from conformance.host.cpu import ISA_LIMITS
from conformance.host.threads import COUNTS
from conformance.models.workflows import (
    is_exact,
    is_exported,
    library,
    most,
    observed,
    rounding,
    step,
    unit,
    variant_of,
    workflow,
)
from conformance.results.rows import Row

from .inline import free, merged, needs

MODULES = ("conformance.models.workflows", "conformance.oracle.workflows", "conformance.configs.codes")
"""The modules whose definitions scripts inline, before those of other scripts."""

QUANTIZES = """\
try:
    quantize_(model, config{asked_for})
except Exception as error:
    {refused}
    sys.exit({status})
"""
WEIGHT = """\
weight = Stored.of(model.op.weight)
if weight is None:
    deviates("annotated", "the weight is not annotated")
    sys.exit(1)
for what, off in weight.off(floating, weight_grid, {error}).items():
    if off.any():
        deviates("annotated", f"the {{what}} are not those of the blocks")
if floating.any() and not weight.values(floating, weight_grid).any():
    deviates("annotated", "all codes stand for zero")
"""
EXECUTES = """\
try:
    program = {program}
    y = program(x)
except Exception as error:
    deviates("lowered", repr(error))
    sys.exit(1)
"""
NUMERICS = """\
values = weight.values(floating, weight_grid)
expected = {expected}
if y.dtype != floating.dtype or y.shape != expected.low.shape:
    deviates("numerics", f"{{y.dtype}} {{tuple(y.shape)}}")
elif (wrong := expected.outside(y.double())).any():
    deviates("numerics", f"{{int(wrong.sum())}} of {{wrong.numel()}} values are outside of their intervals")
"""
OUTPUTS = "outputs(in_float64(original), {inputs}, values, bias, {dtype!r}, step={step}, dequantizes={dequantizes})"
ROWS = "rows(in_float64(original), x, values, {dtype!r}, exact={exact})"
STABLE = """\
if not torch.equal(program(x), y) and not y.isnan().any():
    deviates("stable", "a second run gives other values")
"""
COPIES = """\
try:
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    blank = copy.deepcopy(original)
    blank.load_state_dict(torch.load(file), assign=True)
    if not torch.equal(blank(x), y) or not torch.equal(copy.deepcopy(model)(x), y):
        deviates("stable", "a copy or the saved state gives other values")
except Exception as error:
    deviates("stable", repr(error))
"""
SEVERAL = """\
for count in {counts}:
    torch.set_num_threads(count)
    if not torch.equal(program(x), y) and not y.isnan().any():
        deviates("stable", f"{{count}} threads give other values")
torch.set_num_threads(1)
"""
EXPORTED = """\
try:
    if not torch.equal(torch.export.export(model, (x,)).module()(x), y):
        deviates("stable", "the exported program gives other values")
except Exception as error:
    deviates("stable", repr(error))
"""


def script(run: Run, row: Row, docstring: str, *, isa: str | None = None) -> str:
    """Return the script of a judged run. What it prints, and how it ends, is as of other scripts."""
    body = "".join(_blocks(run, row)) + 'if not found:\n    print("CONFORMS")\nsys.exit(bool(found))\n'
    start = 'torch.set_grad_enabled(False)\ntorch.set_num_threads(1)\nwarnings.simplefilter("ignore")\nfound = []\n'
    used = free(body)
    own = {name: f"from {module} import {name}" for name, module in library(run.backend).names.items() if name in used}
    statements, definitions = needs(start + body, MODULES, own)
    limits = f"import os\n\nos.environ.update({ISA_LIMITS[isa]!r})  # read when torch loads\n\n" if isa else ""
    defined = "".join(f"{text}\n\n" for text in definitions)
    return f"{docstring}\n{limits}{merged(statements)}\n{start}\n\n{defined}{body}"


def _blocks(run: Run, row: Row) -> Iterator[str]:
    entry, dtype, exact = workflow(run), run.recipe.mapping, is_exact(run)
    (spec,) = variant_of(run).operands.values()
    most_is = f", most={most(run)}" if exact and most(run) else ""
    yield f"{run.model.source}\n\nkey = {run.key!r}\nweight_grid = {entry.weight!r}\nconfig = {entry.source}\n"
    filling = f"{'weight_grid' if exact else None}, zero_row={variant_of(run).name == ZERO_ROW}{most_is}"
    yield f"original = filled(Model(), key, {filling}).to(torch.{dtype}).eval()\n"
    yield "model = copy.deepcopy(original)\n"
    yield "floating, bias = original.op.weight.detach(), bias_of(original.op)\n"
    if spec.kind == "indices":
        yield f"x = indices(f'{{key}}/x', {spec.shape}, {spec.limit})\n"
    else:
        data = (
            f"taken(f'{{key}}/x', {spec.shape}, {observed(run)!r}{most_is})"
            if exact
            else f"normal(f'{{key}}/x', {spec.shape})"
        )
        yield f"x = {data}.to(torch.{dtype})\n"
    may_refuse = variant_of(run).name == INDIVISIBLE
    refused = 'print("CONFORMS")' if may_refuse else 'deviates("annotated", repr(error))'
    root = run.claim.root
    asked_for = "" if root == "nn.Linear" else f", filter_fn=lambda module, name: isinstance(module, {root})"
    yield QUANTIZES.format(refused=refused, status=int(not may_refuse), asked_for=asked_for)
    yield WEIGHT.format(error=rounding(run))
    used = engine(run.engine)
    assert isinstance(used, WorkflowEngine)
    if row.verdict == "crashes":
        yield 'deviates("crashes", "unless more is printed")\n'
    yield EXECUTES.format(program=used.source)
    inputs = "Interval(x.double(), x.double())"
    if entry.activation is not None:
        inputs = f"inputs(x, {entry.activation!r}, {unit(run)}, {entry.fixed})"
    if spec.kind == "indices":
        expected = ROWS.format(dtype=dtype, exact=exact)
    else:
        expected = OUTPUTS.format(inputs=inputs, dtype=dtype, step=step(run), dequantizes=entry.rounds)
    yield NUMERICS.format(expected=expected)
    yield STABLE
    if exact:
        yield SEVERAL.format(counts=COUNTS)
    if used is EAGER:
        yield COPIES
        if is_exported(run):
            yield EXPORTED

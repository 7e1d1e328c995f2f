"""The reproduction script of a run whose module is quantized in place: torch and the library that quantizes, and no more."""

from collections.abc import Iterator

from conformance.cases.runs import Run
from conformance.cases.workflows import INDIVISIBLE, ZERO_ROW
from conformance.checks.workflows import ROUNDINGS
from conformance.configs.engines import WORKFLOW_ENGINES
from conformance.configs.workflows import WorkflowConfig
from conformance.host.cpu import ISA_LIMITS
from conformance.models.workflows import is_exact, observed, step, variant_of, workflow
from conformance.oracle.workflows import UNIT
from conformance.results.rows import Row

from .inline import free, merged, needs

MODULES = ("conformance.models.workflows", "conformance.oracle.workflows", "conformance.configs.codes")
"""The modules whose definitions scripts inline, before those of other scripts."""

QUANTIZES = """\
try:
    quantize_(model, config)
except Exception as error:
    {refused}
    sys.exit({status})
"""
WEIGHT = """\
weight = Stored.of(model.op.weight)
if weight is None:
    deviates("annotated", "the weight is not annotated")
    sys.exit(1)
scale, zero_point = qparams(floating, weight_grid)
if ((weight.scale - scale).abs() > {error} * scale).any():
    deviates("annotated", "the scales are not those of the blocks")
if ((weight.zero_point - zero_point).abs() > {shift}).any():
    deviates("annotated", "the zero points are not those of the blocks")
allowed = codes(floating, weight_grid, weight.scale, weight.zero_point, {error})
if allowed.outside(in_blocks(weight.codes, weight_grid.blocks)).any():
    deviates("annotated", "the codes are not the nearest ones")
if floating.any() and not (in_blocks(weight.codes, weight_grid.blocks) - weight.zero_point).any():
    deviates("annotated", "all codes stand for zero")
"""
EXECUTES = """\
try:
    y = program(x)
except Exception as error:
    deviates("lowered", repr(error))
    sys.exit(1)
"""
NUMERICS = """\
stands_for = ((in_blocks(weight.codes, weight_grid.blocks) - weight.zero_point) * weight.scale).reshape(floating.shape)
expected = linear({inputs}, stands_for, bias, {unit}, step={step}, dequantizes={dequantizes})
if y.dtype != x.dtype or y.shape != expected.low.shape:
    deviates("numerics", f"{{y.dtype}} {{tuple(y.shape)}}")
elif (wrong := expected.outside(y.double())).any():
    deviates("numerics", f"{{int(wrong.sum())}} of {{wrong.numel()}} values are outside of what float32 sums may give")
"""
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


def script(run: Run, row: Row, docstring: str, *, isa: str | None = None) -> str:
    """Return the script of a judged run. What it prints, and how it ends, is as of other scripts."""
    body = "".join(_blocks(run, row)) + 'if not found:\n    print("CONFORMS")\nsys.exit(bool(found))\n'
    start = 'torch.set_grad_enabled(False)\ntorch.set_num_threads(1)\nwarnings.simplefilter("ignore")\nfound = []\n'
    config = run.backend.config
    assert isinstance(config, WorkflowConfig)
    used = free(body)
    own = {name: f"from {module} import {name}" for name, module in config.names.items() if name in used}
    statements, definitions = needs(start + body, MODULES, own)
    limits = f"import os\n\nos.environ.update({ISA_LIMITS[isa]!r})  # read when torch loads\n\n" if isa else ""
    defined = "".join(f"{text}\n\n" for text in definitions)
    return f"{docstring}\n{limits}{merged(statements)}\n{start}\n\n{defined}{body}"


def _blocks(run: Run, row: Row) -> Iterator[str]:
    entry, dtype, exact = workflow(run), run.recipe.mapping, is_exact(run)
    unit, (spec,) = UNIT[dtype], variant_of(run).operands.values()
    yield f"{run.model.source}\n\nkey = {run.key!r}\nweight_grid = {entry.weight!r}\nconfig = {entry.source}\n"
    filling = f"{'weight_grid' if exact else None}, zero_row={variant_of(run).name == ZERO_ROW}"
    yield f"original = filled(Model(), key, {filling}).to(torch.{dtype}).eval()\n"
    yield "model = copy.deepcopy(original)\n"
    yield "floating, bias = original.op.weight, None if original.op.bias is None else original.op.bias.double()\n"
    data = f"taken(f'{{key}}/x', {spec.shape}, {observed(run)!r})" if exact else f"normal(f'{{key}}/x', {spec.shape})"
    yield f"x = {data}.to(torch.{dtype})\n"
    may_refuse = variant_of(run).name == INDIVISIBLE
    refused = 'print("CONFORMS")' if may_refuse else 'deviates("annotated", repr(error))'
    yield QUANTIZES.format(refused=refused, status=int(not may_refuse))
    error = 0.0 if exact else ROUNDINGS * UNIT[entry.weight.scale or dtype]
    yield WEIGHT.format(error=error, shift=0 if exact else 1 + error * (entry.weight.high - entry.weight.low))
    eager = run.engine == WORKFLOW_ENGINES[run.backend.name][0]
    if not eager:
        yield f"torch._inductor.config.freezing = {run.engine.endswith('frozen')}\n"
    yield f"program = {'model' if eager else 'torch.compile(model)'}\n"
    if row.verdict == "crashes":
        yield 'deviates("crashes", "unless more is printed")\n'
    yield EXECUTES
    inputs = "Interval(x.double(), x.double())"
    if entry.activation is not None:
        inputs = f"inputs(x, {entry.activation!r}, {0.0 if exact else unit}, {entry.fixed})"
    yield NUMERICS.format(inputs=inputs, unit=unit, step=step(run), dequantizes=entry.dequantizes)
    yield STABLE
    if eager:
        yield COPIES

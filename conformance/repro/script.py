"""A run as a script that needs torch alone and comes to the same finding: what one pastes into an upstream report.

A script is put together from source text: the model's and the recipe's own, and a block for each failing check. Which
form a block takes follows from the row's detail. What the text then refers to is imported, or defined as this package
defines it, and nothing else is.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.ao.quantization.utils import MatchAllNode

from conformance.cases.operators import Operand
from conformance.cases.runs import Run
from conformance.checks.tolerances import tolerance
from conformance.configs.names import pattern_name
from conformance.configs.registry import BACKENDS
from conformance.engines.executorch.runtime import EXECUTORCH
from conformance.engines.native import NATIVE
from conformance.engines.trace import CONVERSIONS, VIEWS
from conformance.host.isa import ISA_LIMITS
from conformance.models.build import CannotBeBuilt, subject
from conformance.models.fx import quiet
from conformance.results.ledger import Entry
from conformance.results.profiles import CHECKS
from conformance.results.rows import Row

from . import constraints, metamorphic
from .inline import CHANNELS_LAST, LOADED, merged, needs


def findings(row: Row) -> dict[str, str]:
    """What each failing check of a row says."""
    starts = "|".join(CHECKS)
    parts = re.split(rf"(?:^|; )({starts}): ", row.detail)
    texts = (text.replace("engine's output", "engine output") for text in parts[2::2])
    return {name: text for name, text in zip(parts[1::2], texts, strict=True) if name in row.failed}


@dataclass(frozen=True)
class Case:
    """A run with what its checks found."""

    run: Run
    found: dict[str, str]

    def raises(self, check: str, words: str) -> bool:
        return self.found.get(check, "").startswith(f"{words} raises ")

    def says(self, check: str, words: str) -> bool:
        return words in self.found.get(check, "")


def operand_source(run: Run, name: str, spec: Operand, *, executed: bool) -> str:
    """The expression of one operand's data; `pipeline.operand` is what it has to equal."""
    assert run.variant is not None
    values = _values_source(run, name, spec, executed=executed)
    if run.variant.saturates and not executed and spec.kind == "activation":
        values = f"ends_alone({values})"
    return values if spec.layout == "contiguous" else f"laid_out({values}, {spec.layout!r})"


def _values_source(run: Run, name: str, spec: Operand, *, executed: bool) -> str:
    assert run.variant is not None
    shape, key = spec.shape, f"/{name}"
    if executed and run.variant.batch is not None:
        shape, key = (run.variant.batch, *shape[1:]), f"{key}/batch{run.variant.batch}"
    label = f'key + "{key}"'
    if spec.kind == "indices":
        return f"integers({label}, {torch.Size(shape).numel()}, 0, {spec.limit - 1}).reshape({shape})"
    if spec.kind == "offsets":
        drawn = f"integers({label}, {shape[0] - 1}, 0, {spec.limit}).sort().values"
        return f"torch.cat([torch.zeros(1, dtype=torch.int64), {drawn}])"
    if spec.kind == "weights":
        return f"grid({label}, {shape}, 1, 4, -1)"
    if run.profile == "typical":
        return f"normal({label}, {shape})"
    low, high, exponent = run.bounds(spec)
    return f"grid({label}, {shape}, {low}, {high}, {exponent})"


def pattern_source(pattern: Any) -> str:
    """A pattern as source text over the names that scripts import."""
    if isinstance(pattern, tuple):
        return f"({', '.join(map(pattern_source, pattern))})"
    if pattern is MatchAllNode:
        return "MatchAllNode"
    return repr(pattern) if isinstance(pattern, str) else pattern_name(pattern)


def _guarded(raises: bool, check: str, stage: str, lines: str) -> str:
    """Lines as they are, or in a `try` that reports what they raise, if they do."""
    if not raises:
        return lines
    inner = "".join(f"    {line}\n" for line in lines.splitlines())
    return f'try:\n{inner}except Exception as error:\n    deviates("{check}", f"{stage} raises {{error!r:.400}}")\n'


# What a script does, in order.


def _setting(case: Case) -> Iterator[str]:
    run = case.run
    yield f"{run.model.source}"
    if run.recipe.qconfig.startswith("QConfig("):
        activation, weight = run.recipe.qconfig.removeprefix("QConfig(activation=").removesuffix(")").split(", weight=")
        yield f"qconfig = QConfig(\n    activation={activation},\n    weight={weight},\n)\n"
    elif re.search(r"\bqconfig\b", run.recipe.mapping + run.model.source):
        yield f"qconfig = {run.recipe.qconfig}\n"
    yield f"mapping = {run.recipe.mapping}\n"
    yield _backend_config(run)
    yield f'key = "{run.key}"  # what the data are a function of\n'
    calibration, inputs = (_data(run, executed=executed) for executed in (False, True))
    if calibration != inputs:
        yield f"def calibration():\n    return {calibration}\n"
    yield f"def inputs():\n    return {inputs}\n"


def _backend_config(run: Run) -> str:
    if run.backend.name in BACKENDS:
        return f"backend_config = get_{run.backend.name}_backend_config()\n"
    return f"{run.backend.source}\nbackend_config = {run.backend.source.rpartition(' ')[2]}()\n"


def _data(run: Run, *, executed: bool) -> str:
    parts = [operand_source(run, name, spec, executed=executed) for name, spec in run.model.operands]
    if run.profile == "laws":
        return f"with_ends(({', '.join(parts)},))"
    return f"({parts[0]},)" if len(parts) == 1 else ", ".join(parts)


def _float_outputs(run: Run) -> str:
    lines = "float_model = copy.deepcopy(model).eval()\n"
    if "nnqat." in run.model.source or "nniqat." in run.model.source:
        lines += (
            "for module in float_model.modules():\n"
            '    if hasattr(module, "weight_fake_quant"):\n'
            "        module.weight_fake_quant = nn.Identity()\n"
        )
    if "EmbeddingBag" in run.model.source:
        return f"{lines}ideal = tensors(float_model(*inputs()))\n"
    data = "[x.double() if x.is_floating_point() else x for x in inputs()]"
    made = f"ideal = tensors(float_model.double()(*{data}))\n"
    if "nniqat." in run.model.source:  # some of these make a bias of their own
        made = f"torch.set_default_dtype(torch.float64)\n{made}torch.set_default_dtype(torch.float32)\n"
    return lines + made


def _has_state(run: Run) -> bool:
    """Whether the model has parameters or buffers; one that cannot be built may."""
    with quiet():
        try:
            return bool(subject(run).model.state_dict())
        except CannotBeBuilt:
            return True


def _built(case: Case) -> Iterator[str]:
    run = case.run
    lines = "model = Model()\n"
    if _has_state(run):
        typical = run.profile == "typical"
        lines += "fill_typical(model, key)\n" if typical else metamorphic.filled(run, "model")
    if case.raises("matched", "the pattern cannot occur: the float model"):
        yield _guarded(True, "matched", "the float model", lines + _float_outputs(run))
        return
    yield f"{lines}model.train()\n" if run.flow == "qat" else f"{lines}model.eval()\n"
    if "accuracy" in case.found:
        yield _float_outputs(run)


def _prepared(case: Case) -> Iterator[str]:
    if case.raises("matched", "the pattern cannot occur: the float model"):
        return
    entry = "prepare_qat_fx" if case.run.flow == "qat" else "prepare_fx"
    model = "copy.deepcopy(model)" if case.says("matched", "without this claim") else "model"
    lines = f"prepared = {entry}({model}, mapping, calibration(), backend_config=backend_config)\n"
    yield _guarded(case.raises("observed", "prepare"), "observed", "prepare", lines)
    if case.raises("observed", "prepare"):
        return
    if case.says("stable", "state_dict"):
        yield "blank = copy.deepcopy(prepared)\n"
    lines = ""
    if case.run.flow == "qat":
        lines += "for module in prepared.modules():\n"
        lines += '    if hasattr(module, "freeze_bn_stats"):\n        module.freeze_bn_stats()\n'
    lines += "prepared(*calibration())\nprepared.eval()\n"
    yield _guarded(case.raises("observed", "the observed model"), "observed", "the observed model", lines)


def _reference(case: Case) -> Iterator[str]:
    if not {"reference", "constraints"} & set(case.found) and not case.says("numerics", FROM_RUN_TO_RUN):
        return
    lines = "reference = convert_to_reference_fx(copy.deepcopy(prepared), backend_config=backend_config)\n"
    yield _guarded(case.raises("reference", "convert_to_reference"), "reference", "convert_to_reference_fx", lines)
    if case.raises("reference", "convert_to_reference"):
        return
    lines = "given = inputs()\nwith Trace() as reference_trace:\n    expected = tensors(reference(*given))\n"
    if case.raises("reference", "the reference model"):
        lines = "reference(*inputs())\n"
    yield _guarded(case.raises("reference", "the reference model"), "reference", "the reference model", lines)


def _executed(case: Case) -> Iterator[str]:
    asks = {"lowered", "numerics", "accuracy", "stable", "crashes"} & set(case.found)
    asks |= {"matched"} if case.says("matched", "without this claim") else set()
    asks |= {"constraints"} if case.says("constraints", "engine output") else set()
    if not asks:
        return
    if case.run.engine == EXECUTORCH.name:
        yield from _executed_ahead_of_time(case)
        return
    again = {"reference", "numerics", "matched", "observed", "constraints"} & set(case.found)
    prepared = "copy.deepcopy(prepared)" if again else "prepared"
    lines = f"lowered = convert_fx({prepared}, backend_config=backend_config)\n"
    yield _guarded(case.raises("lowered", "lower"), "lowered", "convert_fx", lines)
    if case.raises("lowered", "lower"):
        return
    if case.raises("lowered", "execute"):
        yield _guarded(True, "lowered", "execution", "lowered(*inputs())\n")
    elif "crashes" in case.found:
        yield 'print(f"DEVIATES crashes: the process dies here", flush=True)\n'
        yield "for byte in (0x55, 0xAA):\n    with fresh_memory_holds(byte):\n        lowered(*inputs())\n"
    elif asks != {"matched"}:
        line = "given = inputs()\nwith Trace() as trace:\n    outputs = tensors(lowered(*given))\n"
        if case.says("stable", "second run"):
            line = line.replace("with Trace() as trace", "with fresh_memory_holds(0x55), Trace() as trace")
        yield line


def _executed_ahead_of_time(case: Case) -> Iterator[str]:
    lines = (
        "reference = _convert_to_reference_decomposed_fx(copy.deepcopy(prepared), backend_config=backend_config)\n"
        "lowered = trace = Program(with_integer_weights(reference), inputs())\n"
    )
    yield "import executorch.kernels.quantized  # registers kernels\n"
    yield _guarded(case.raises("lowered", "lower"), "lowered", "lowering", lines)
    if case.raises("lowered", "lower"):
        return
    yield _guarded(case.raises("lowered", "execute"), "lowered", "execution", "outputs = lowered(*inputs())\n")
    if case.says("lowered", "ran in float: "):
        yield 'if lowered.in_float:\n    deviates("lowered", f"these compute in float: {lowered.in_float}")\n'


# One function for each check: the blocks that show it where nothing raises.


def _matched(case: Case) -> Iterator[str]:
    if not case.says("matched", "without this claim"):
        return
    entry = case.run.claim.entry
    attribute = "_pattern_complex_format" if entry.pattern is None else "pattern"
    pattern = pattern_source(getattr(entry, attribute))
    prepare = "prepare_qat_fx" if case.run.flow == "qat" else "prepare_fx"
    yield (
        f"entries = [entry for entry in backend_config.configs if entry.{attribute} != {pattern}]\n"
        "assert len(entries) == len(backend_config.configs) - 1\n"
        "rest = BackendConfig().set_backend_pattern_configs(entries)\n"
        f"other = {prepare}(copy.deepcopy(model), mapping, calibration(), backend_config=rest)\n"
        "other(*calibration())\n"
        "other.eval()\n"
        "if str(other) == str(prepared) and str(convert_fx(other, backend_config=rest)) == str(lowered):\n"
        "    print(lowered)\n"
        '    deviates("matched", "without its entry in the config, the observed and the lowered model are the same")\n'
    )


FROM_RUN_TO_RUN = "the codes differ from run to run"

OBSERVATIONS = (
    (r"input (\w+) is not observed", "None in (observers('{0}') or [None])"),
    (r"input (\w+) is observed as \w+, not (\w+)", "{{o.dtype for o in observers('{0}')}} != {{torch.{1}}}"),
    (r"the observer of input (\w+) is not dynamic", "not all(o.is_dynamic for o in observers('{0}'))"),
    (r"the output of a dynamic claim is observed", "observer(result) is not None"),
    (r"the output is not observed", "observer(result) is None"),
    (r"the output is observed as \w+, not (\w+)", "observer(result).dtype != torch.{0}"),
    (r"input and output share an observer", "observer(result) in observers({inputs})"),
    (r"input and output do not share an observer", "observer(result) not in observers({inputs})"),
    (
        r"\d+ observers inside of the pattern",
        "any(n is not result and observer(n) and n.args[0].op != 'placeholder' for n in nodes.values())",
    ),
    (
        r"([\w.]+) observes the codes (\S+) to (\S+), not ",
        "[o for o in prepared.modules() if (getattr(o, 'quant_min', 0), getattr(o, 'quant_max', 0)) == ({1}, {2})]",
    ),
    (r"(\S+) does not fake-quantize", "not prepared.get_submodule('{0}').fake_quant_enabled"),
    (r"(\S+) does not observe", "not prepared.get_submodule('{0}').observer_enabled"),
    (r"(\w+) observes an activation as (\w+)", "observer(nodes['{0}']).dtype == torch.{1}"),
    (r"no (\w+) in the \w+ model", "'{0}' not in [type(module).__name__ for module in prepared.modules()]"),
)
"""What `checks.observed` finds and the expression that holds if it is so."""

REFERENCES = (
    (r"no (\w+) in the reference model", "'{0}' not in [type(module).__name__ for module in reference.modules()]"),
    (
        r"weight quantized to (\w+), not \w+",
        "any(getattr(module, 'weight_dtype', None) == torch.{0} for module in reference.modules())",
    ),
    (
        r"(\w+) quantizes to (\w+)",
        "any(node.name == '{0}' and torch.{1} in node.args for node in reference.graph.nodes)",
    ),
    (
        r"the reference model quantizes nothing",
        "not any('quantize_per' in str(n.target) or n.target == 'to' for n in reference.graph.nodes)",
    ),
)
"""What `checks.reference` finds, likewise."""


def _by_table(case: Case, check: str, table: Iterable[tuple[str, str]]) -> Iterator[str]:
    """A block for each problem that a check found and the table knows."""
    inputs = ", ".join(repr(name) for name, spec in case.run.model.operands if spec.kind == "activation")
    for problem in case.found[check].split("; "):
        for expression, condition in table:
            if match := re.match(expression, problem):
                holds = condition.format(*match.groups(), inputs=inputs)
                yield f'if {holds}:\n    deviates("{check}", {problem!r})\n'
                break


def _observed(case: Case) -> Iterator[str]:
    blocks = [*_by_table(case, "observed", OBSERVATIONS)]
    if blocks:
        yield "print(prepared.graph)\nnodes = {node.name: node for node in prepared.graph.nodes}\n"
    if any(re.search(r"\bresult\b", block) for block in blocks):
        yield "result = nodes['output'].all_input_nodes[0]\n"
    yield from blocks


def _reference_model(case: Case) -> Iterator[str]:
    blocks = [*_by_table(case, "reference", REFERENCES)]
    if blocks:
        yield "print(reference)\n"
    yield from blocks
    for problem in case.found["reference"].split("; "):
        if match := re.match(
            r"the reference model quantizes nothing with the scale (.*) and zero point (.*) of", problem
        ):
            yield (
                'made = [given for name, _, given in reference_trace.calls if name.startswith("aten.quantize_per")]\n'
                f"if not any(scales(t)[:4] == [{match[1]}] and zero_points(t)[:4] == [{match[2]}] for t in made):\n"
                f'    deviates("reference", {problem!r})\n'
            )
        elif match := re.match(r"the reference model's (.*)", problem):
            yield from _held_to_golden(
                "reference", match[1], "expected", "reference_trace", tolerance(case.run).anywhere
            )


CONSTRAINTS = (
    (r"(.+) scale \S+ is below (\S+)", "any(min(scales(t)) < {1} for t in constrained['{0}'])"),
    (r"(.+) scale \S+ is above (\S+)", "any(max(scales(t)) > {1} for t in constrained['{0}'])"),
    (r"(.+) scale is \S+, not (\S+)", "any(set(scales(t)) != {{{1}}} for t in constrained['{0}'])"),
    (r"(.+) zero point is \S+, not (\S+)", "any(set(zero_points(t)) != {{{1}}} for t in constrained['{0}'])"),
    (r"(.+) has code \S+, below quant_min (\S+)", "any(t.int_repr().min() < {1} for t in constrained['{0}'])"),
    (r"(.+) has code \S+, above quant_max (\S+)", "any(t.int_repr().max() > {1} for t in constrained['{0}'])"),
)
"""What `checks.constraints` finds, likewise; `constrained` holds the tensors that each kind of problem is about."""


def _constraints(case: Case) -> Iterator[str]:
    weights = "[m.get_quantized_weight() for m in reference.modules() if hasattr(m, 'get_quantized_weight')]"
    lines = {"output": "[reference_trace.source(y) for y in expected]", "weight": weights}
    if case.says("constraints", "engine output"):
        lines["engine output"] = "[trace.source(y) for y in outputs]"
    yield "constrained = {\n" + "".join(f'    "{name}": {tensors},\n' for name, tensors in lines.items()) + "}\n"
    yield from _by_table(case, "constraints", CONSTRAINTS)


def _set(name: str, members: Iterable[str]) -> str:
    """An assignment of a set of strings, four to a line."""
    words = [f'"{member}"' for member in sorted(members)]
    lines = "".join(f"    {', '.join(words[i : i + 4])},\n" for i in range(0, len(words), 4))
    return f"{name} = {{\n{lines}}}\n"


def _lowered(case: Case) -> Iterator[str]:
    if case.run.engine == EXECUTORCH.name:
        return
    text, static = case.found["lowered"], case.run.recipe.kind == "static"
    in_float, none = "ran in float: " in text, "no quantized kernel ran" in text
    if in_float or none:
        yield _set("conversions", CONVERSIONS)
    if in_float:
        views = "" if static else " | views"
        if views:
            yield _set("views", VIEWS)
        yield (
            "in_float = [\n"
            "    name for name, taken, _ in trace.calls\n"
            "    if any(x.is_floating_point() for x in taken) and not quantized(name, taken)\n"
            "]\n"
            f"in_float = [name for name in in_float if name not in conversions{views}]\n"
            'if in_float:\n    deviates("lowered", f"these run on float tensors: {in_float}")\n'
        )
    if none:
        yield (
            "if not any(quantized(name, taken) and name not in conversions for name, taken, _ in trace.calls):\n"
            '    deviates("lowered", "no quantized kernel runs")\n'
        )
    if "is left quantized" in text:
        yield (
            'if any(y.is_quantized for y in outputs):\n    deviates("lowered", "the model gives a quantized tensor")\n'
        )
    if "converts to float inside of the kernel" in text:
        yield (
            "with torch.autograd.profiler.profile() as profile:\n    lowered(*inputs())\n"
            "inside = [\n"
            '    f"{event.cpu_parent.name} > {event.name}" for event in profile.function_events\n'
            '    if event.cpu_parent and event.name in ("aten::dequantize", "aten::quantize_per_tensor")\n'
            "]\n"
            'if inside:\n    deviates("lowered", f"kernels convert to float inside: {inside}")\n'
        )


def _wrong_shape(check: str) -> str:
    return (
        "for got, wanted in zip(outputs, ideal):\n    if got.shape != wanted.shape:\n"
        f'        deviates("{check}", f"shape {{tuple(got.shape)}}, the float model gives {{tuple(wanted.shape)}}")\n'
    )


def _held_to_golden(check: str, text: str, made: str, trace: str, steps: int) -> Iterator[str]:
    """A block that holds an output to what exact arithmetic gives, in the numbers that a check's text has.

    `made` is the list of outputs, `trace` the record of how they came about, `steps` the tolerance.
    """
    number, text = (match[1], text[match.end() :]) if (match := re.match(r"output (\d+): ", text)) else ("0", text)
    got = f"{made}[{number}]"
    if match := re.match(r"(\d+) outputs, golden (\d+)", text):
        yield f'if len({made}) != {match[2]}:\n    deviates("{check}", f"{{len({made})}} outputs, not {match[2]}")\n'
    elif match := re.match(r"shape .*?\), golden (\(.*?\))", text):
        yield (
            f"if tuple({got}.shape) != {match[1]}:\n"
            f'    deviates("{check}", f"shape {{tuple({got}.shape)}}, not {match[1]}")\n'
        )
    elif text.startswith("gives "):
        in_float = text.startswith("gives float")
        yield (
            f"if ({trace}.source({got}) is None) is {in_float}:\n"
            f'    deviates("{check}", "the output is{"" if in_float else " not"} float")\n'
        )
    elif match := re.match(r"(\w+), golden (per_tensor_affine)", text):
        yield (
            f"q = {trace}.source({got})\nif q.qscheme() != torch.{match[2]}:\n"
            f'    deviates("{check}", f"{{q.qscheme()}}, not {match[2]}")\n'
        )
    elif match := re.match(r"scale .*, golden (\S+), (\S+), (\w+)", text):
        yield (
            f"q = {trace}.source({got})\nqparams = (q.q_scale(), q.q_zero_point(), q.dtype)\n"
            f"if qparams != ({match[1]}, {match[2]}, torch.{match[3]}):\n"
            f'    deviates("{check}", f"qparams {{qparams}}, not {match[1]}, {match[2]}")\n'
        )
    else:
        codes = " codes differ " in text
        table = re.findall(r"(\([\d, ]*\)) got \S+ golden (\S+)", text)
        exactly = {eval(where): int(golden) if codes else float(golden) for where, golden in table}
        yield (
            f"exactly = {exactly}  # what exact arithmetic gives, by index\n"
            f"values = {f'{trace}.source({got}).int_repr()' if codes else got}\n"
            "got = {index: values[index].item() for index in exactly}\n"
            f"if not all(abs(got[index] - value) <= {steps if codes else 'abs(value) * 2**-20'}"
            " for index, value in exactly.items()):\n"
            f'    deviates("{check}", f"{{got}} where exact arithmetic gives {{exactly}}")\n'
        )


def _numerics(case: Case) -> Iterator[str]:
    text = case.found["numerics"]
    if FROM_RUN_TO_RUN in text:
        yield (
            "for got, wanted in zip(outputs, expected):\n    if not torch.equal(got, wanted):\n"
            '        deviates("numerics", "the output is not that of the reference model")\n'
        )
    else:
        yield from _held_to_golden("numerics", text, "outputs", "trace", tolerance(case.run).anywhere)


def _accuracy(case: Case) -> Iterator[str]:
    text = case.found["accuracy"]
    if text.startswith("shape "):
        yield _wrong_shape("accuracy")
        return
    yield (
        "signal = sum(float(y.double().square().sum()) for y in ideal)\n"
        "noise = sum(float((a.double() - b.double()).square().sum()) for a, b in zip(outputs, ideal))\n"
    )
    if match := re.search(r"below ([\d.]+) dB", text):
        yield (
            "sqnr = 10 * math.log10(signal / noise)\n"
            f'if sqnr < {match[1]}:\n    deviates("accuracy", f"SQNR {{sqnr:.1f}} dB against the float model")\n'
        )
    else:
        yield "if math.isnan(noise) or (noise and not signal):\n"
        yield '    deviates("accuracy", f"noise {noise}, signal {signal}")\n'


REPETITIONS = {
    "second run": "with fresh_memory_holds(0xAA):\n    again = tensors(lowered(*inputs()))\n",
    "another call": (
        "written = [y if trace.source(y) is None else trace.source(y) for y in outputs]\n"
        "outputs = [y.dequantize().clone() for y in outputs]\n"
        "lowered(*[x.flip(tuple(range(x.dim()))) if x.is_floating_point() else x for x in inputs()])\n"
        "again = written  # after another call\n"
    ),
    "state_dict": f"{LOADED}again = tensors(other(*inputs()))\n",
    "channels_last": f"{CHANNELS_LAST}with fresh_memory_holds(0xAA):\n    again = tensors(lowered(*channels_last))\n",
}
"""What must not make a difference, and the lines that do it."""


def _stable(case: Case) -> Iterator[str]:
    if case.run.profile == "laws":
        yield from metamorphic.blocks(case.run, case.found["stable"])
        return
    if case.says("stable", " writes to its tensor "):
        yield (
            "with Writes() as writes:\n    lowered(*inputs())\n"
            'if writes.found:\n    deviates("stable", f"{writes.found}")\n'
        )
    for name, template in REPETITIONS.items():
        lines = template.replace("{levels}", str(case.run.recipe.weight_levels))
        if case.says("stable", f"{name} raises "):
            yield _guarded(True, "stable", name, lines)
        elif case.says("stable", f"{name} changes "):
            yield (
                f"{lines}if not all(torch.equal(a.dequantize(), b.dequantize()) for a, b in zip(outputs, again)):\n"
                f'    deviates("stable", "{name} changes the outputs")\n'
            )


BLOCKS: dict[str, Callable[[Case], Iterator[str]]] = {
    "matched": _matched,
    "observed": _observed,
    "reference": _reference_model,
    "constraints": _constraints,
    "lowered": _lowered,
    "numerics": _numerics,
    "accuracy": _accuracy,
    "stable": _stable,
}


def _counterexample(case: Case) -> Iterator[str]:
    """The whole of a script about a constraint: its QConfigs are not the recipe's."""
    run = case.run
    yield f"{run.model.source}"
    registered = run.backend.name in BACKENDS
    yield (not registered and constraints.config_source(run.claim.entry)) or _backend_config(run)
    yield f'key = "{run.key}"  # what the data are a function of\n'
    filled = f"fill(model, key, {run.recipe.weight_levels})\n" if _has_state(run) else ""
    yield from constraints.blocks(run, case.found, _data(run, executed=False), filled)
    if "constraints" in case.found:
        said = {"constraints": case.found["constraints"].partition(": QConfig(")[0]}
        yield from _by_table(Case(run, said), "constraints", CONSTRAINTS)


def _docstring(run: Run, row: Row, entry: Entry | None) -> str:
    checked = re.sub(rf"; (?=(?:{'|'.join(CHECKS)}): )", "\n", row.detail)
    lines = [run.id, "", *(checked or "conforms").splitlines()]
    if entry is not None:
        lines += ["", entry.reason, f"Upstream: {entry.upstream}"]
    text = "\n".join(lines).replace("\\", "\\\\").replace('"""', "'''")
    return f'"""{text}\n"""\n'


def script(run: Run, row: Row, entry: Entry | None, *, isa: str | None = None) -> str:
    """Return the script of a judged run. It prints `DEVIATES check: …` for each failing check and exits with 1, or
    `CONFORMS`; a crash takes the script's own process down. `isa` limits the instruction set as `--isa` does."""
    case = Case(run, {**findings(row), **({"crashes": row.detail} if row.verdict == "crashes" else {})})
    if run.profile == "constraints":
        parts = [*_counterexample(case)]
    else:
        stages = (_setting, _built, _prepared, _reference, _executed)
        parts = [part for stage in stages for part in stage(case)]
        for check, block in BLOCKS.items():
            if check in case.found:
                parts += block(case)
    if "calibration()" in "".join(parts) and "def calibration" not in "".join(parts):
        parts = [part.replace("calibration()", "inputs()") for part in parts]
    body = "".join(_spaced(parts)) + 'if not found:\n    print("CONFORMS")\nsys.exit(bool(found))\n'
    # what is no engine of torch's own only names the config
    engine = f'torch.backends.quantized.engine = "{run.engine}"\n' if run.engine in NATIVE else ""
    start = f'torch.set_grad_enabled(False)\n{engine}warnings.simplefilter("ignore")\nfound = []\n'
    statements, definitions = needs(start + body)
    limits = f"import os\n\nos.environ.update({ISA_LIMITS[isa]!r})  # read when torch loads\n\n" if isa else ""
    defined = "".join(f"{text}\n\n" for text in definitions)
    return f"{_docstring(run, row, entry)}\n{limits}{merged(statements)}\n{start}\n\n{defined}{body}"


def _spaced(parts: Iterable[str]) -> Iterator[str]:
    """Parts with the empty lines around definitions that readers expect."""
    apart = True
    for part in parts:
        defines = part.startswith(("class ", "def "))
        yield part if apart or not defines else f"\n\n{part}"
        if defines:
            yield "\n\n"
        apart = defines

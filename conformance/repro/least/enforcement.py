"""Symptoms of constraints that torch does not enforce: QConfigs that are used or ignored, tensors that violate a bound."""

from collections.abc import Iterator

from conformance.results.findings.constraints import (
    ConversionViolates,
    ConvertedViolation,
    IgnoredQConfigTrainsWeight,
    ViolatingQConfigUsed,
)

from .candidate import Candidate
from .lines import GRADIENTS, TO_REFERENCE, least_lines
from .symptoms import Symptom
from .text import ending

OBSERVERS = "[node.name for node in {} if 'activation_post_process' in node.name]"
FAKE_QUANTIZED = "[type(module).__name__ for module in prepared.modules() if hasattr(module, 'weight_fake_quant')]"
WEIGHTS = "[module.get_quantized_weight() for module in reference.modules() if hasattr(module, 'get_quantized_weight')]"
INTERPRETED = """\
interpreter = torch.fx.Interpreter(reference, garbage_collect_values=False)
interpreter.run({})
calls = {{n: value for n, value in interpreter.env.items() if n.target is torch.quantize_per_tensor}}
weights = [value for n, value in calls.items() if n.args[0].op == "get_attr"]
"""
QUANTIZED_INPUT = "*_, inner, outer = [n for n in reference.graph.nodes if n.target is torch.quantize_per_tensor]\n"
"""The line that binds the quantize calls of the pattern's input and output, the last two of the model."""

QUANTITIES = {
    "scale_min_lower_bound": ("q_scale()", 1, "<"),
    "scale_max_upper_bound": ("q_scale()", 1, ">"),
    "scale_exact_match": ("q_scale()", 1, "!="),
    "zero_point_exact_match": ("q_zero_point()", 2, "!="),
    "quant_min_lower_bound": ("int_repr().min().item()", 0, "<"),
    "quant_max_upper_bound": ("int_repr().max().item()", 0, ">"),
}
"""By field of a DTypeWithConstraints: what a quantized tensor has of it, the number of the argument of a quantize call that
has it, if one does, and the relation to the bound that violates the field."""


ConstraintFinding = ConversionViolates | IgnoredQConfigTrainsWeight | ViolatingQConfigUsed


class Unenforced(Symptom[ConstraintFinding]):
    """prepare or convert does not enforce a constraint of the dtype config."""

    @property
    def title(self) -> str:
        if isinstance(self.finding, ConversionViolates):
            return f"the {self.finding.violation.tensor} violates {self.finding.violation.violation.field}"
        if isinstance(self.finding, ViolatingQConfigUsed):
            return "a QConfig that violates the constraints is used"
        return "a QConfig that is ignored for activations is used for the weight"

    @property
    def expectation(self) -> str:
        if isinstance(self.finding, ConversionViolates):
            return "Expected: with a QConfig that satisfies the constraints, so does every tensor."
        return "Expected: no part of the QConfig is used."

    @property
    def data_matter(self) -> bool:
        return isinstance(self.finding, ConversionViolates) and self.finding.violation.weights not in ("", "w")

    def bodies(self, candidate: Candidate) -> Iterator[str]:
        if isinstance(self.finding, ConversionViolates):
            yield from self._converted(candidate, self.finding.violation)
            return
        lines = least_lines(self.run, candidate)
        nodes = "prepared.graph.nodes"
        if self.run.variant is not None and self.run.variant.prelude:
            nodes = "prepared.graph.output_node().all_input_nodes"
        observers = OBSERVERS.format(nodes)
        got, condition = observers, "got != expected"
        if isinstance(self.finding, IgnoredQConfigTrainsWeight):
            got, condition = FAKE_QUANTIZED, f"got and not {observers}"
        yield f"{lines.built}{lines.prepare()}expected, got = [], {got}\n" + ending(
            self.check, condition, "the QConfig is used"
        )

    def _converted(self, candidate: Candidate, violation: ConvertedViolation) -> Iterator[str]:
        field, bound = violation.violation.field, violation.violation.bound
        of_tensor, position, relation = QUANTITIES[field]
        if (
            violation.trained
            or violation.tensor not in ("weight", "input")
            or (violation.tensor == "input" and not position)
        ):
            return
        weights = ""
        if violation.weights not in ("", "w"):
            weights = f"for w in model.parameters():\n    w.copy_({violation.weights})\n"
        source = least_lines(self.run, candidate)
        lines = source.setting
        if weights and GRADIENTS not in lines:
            lines = lines.replace("\n", f"\n{GRADIENTS}", 1)
        lines += source.model + weights + source.prepare() + source.calibrate
        wanted = {"<": "at least", ">": "at most", "!=": "exactly"}[relation]
        end = f'expected = "{wanted} {bound!r}"\n'
        end += ending(self.check, f"any(value {relation} {bound!r} for value in got)", field)
        lines += f"reference = {TO_REFERENCE}"
        if violation.tensor == "weight":
            yield f"{lines}weights = {WEIGHTS}\ngot = [weight.{of_tensor} for weight in weights]\n{end}"
            yield f"{lines}{INTERPRETED.format(source.arguments())}got = [weight.{of_tensor} for weight in weights]\n{end}"
        else:
            yield f"{lines}{QUANTIZED_INPUT}got = [reference.get_buffer(inner.args[{position}].target).item()]\n{end}"

"""Symptoms of observed models: inputs and outputs without an observer, and claims without effect."""

from collections.abc import Iterator

from conformance.repro.structure import pattern_source
from conformance.results.findings.structure import NoEffect, NotObserved

from .candidate import Candidate
from .symptoms import Symptom
from .text import arguments, ending, model_lines, prepare_line, setting


class Unobserved(Symptom[NotObserved]):
    """An input of the pattern, or its output, has no observer."""

    @property
    def title(self) -> str:
        return self.finding.text

    @property
    def expectation(self) -> str:
        return "Expected: an observer, which the dtype config asks for."

    def bodies(self, candidate: Candidate) -> Iterator[str]:
        lines = setting(self.run, candidate) + model_lines(self.run, candidate) + prepare_line(self.run, candidate)
        neighbours = "all_input_nodes" if self.finding.node is None else "users"
        name = self.finding.node or "output"
        lines += (
            f'node = next(node for node in prepared.graph.nodes if node.name == "{name}")\n'
            f'expected, got = "an observer", [str(one.target) for one in node.{neighbours}]\n'
        )
        condition = 'not any("activation_post_process" in name for name in got)'
        yield lines + ending(self.check, condition, "no observer")


class Ineffective(Symptom[NoEffect]):
    """The observed and the lowered model are the same without the claim in the config."""

    @property
    def title(self) -> str:
        return "the entry of the pattern in the backend config has no effect"

    @property
    def expectation(self) -> str:
        return "Expected: without the entry, another model is observed or lowered."

    def bodies(self, candidate: Candidate) -> Iterator[str]:
        entry = self.run.claim.entry
        attribute = "_pattern_complex_format" if entry.pattern is None else "pattern"
        if self.run.flow == "qat" or candidate.parameter_lines:
            return
        prepare = prepare_line(self.run, candidate).replace("model,", f"{self._model(candidate)},", 1)
        yield (
            f"{setting(self.run, candidate)}texts = []\n"
            f"entries = [one for one in config.configs if one.{attribute} != {pattern_source(getattr(entry, attribute))}]\n"
            "assert len(entries) == len(config.configs) - 1\n"
            "for config in (config, BackendConfig().set_backend_pattern_configs(entries)):\n"
            f"    {prepare}    observed = str(prepared)\n    prepared({arguments(candidate)})\n"
            "    texts.append(observed + str(convert_fx(prepared, backend_config=config)))\n"
            "expected, got = texts\n" + ending(self.check, "got == expected", "the same without the entry")
        )

    def _model(self, candidate: Candidate) -> str:
        """The expression of the model."""
        return model_lines(self.run, candidate).strip().removeprefix("model = ")

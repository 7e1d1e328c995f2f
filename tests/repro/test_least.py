"""Least scripts are small, need torch alone, and deviate as the run that they come from does."""

import argparse
import ast
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from conformance.commands.runs import find, repro_command
from conformance.execution.batch import judge_runs
from conformance.host.isolation import Raised
from conformance.repro.least import reductions, script, search
from conformance.repro.least.candidate import Candidate, Data, inlined, literal
from conformance.repro.least.lines import least_lines
from conformance.repro.least.script import NoLeastScript, least, recipes_for, subject_of, symptoms
from conformance.repro.least.search import Search, deviates, fitted
from conformance.repro.least.starts import starts
from conformance.repro.least.symptoms import Raising, Symptom, raised_alike
from conformance.repro.least.text import executed, folded, whole
from conformance.repro.least.values import WrongValues
from conformance.results.findings.stages import Raises
from conformance.results.findings.structure import RanInFloat
from conformance.results.findings.values import CodesDiffer, LowSqnr
from conformance.results.rows import Row

sys.path.insert(0, str(Path(__file__).parents[1]))

from fabricated import row_of
from run_reproductions import Reproduction, reproduce

ALPHA = "qnnpack/torch.add/static-quint8/ptq/alpha_2/exact@qnnpack"
LINEAR = "qnnpack/nn.Linear/static-quint8/ptq/default/exact@qnnpack"
MOST_LINES = 40


def judged(run_id: str) -> Row:
    (result,) = judge_runs([find(run_id)], lambda _: None)
    assert not isinstance(result, Raised)
    return result.row


def candidate(**changes: Any) -> Candidate:
    """A convolution with a ReLU, on four images of ones."""
    conv = Candidate(
        ("self.op = nn.Conv2d(4, 8, 3, padding=1)", "self.relu = nn.ReLU()"),
        ("y = self.op(x)", "y = self.relu(y)", "return y"),
        ("x",),
        (Data("ones", (2, 4, 6, 6)),),
        "None",
        'get_default_qconfig_mapping("qnnpack")',
    )
    return replace(conv, **changes)


@pytest.mark.parametrize(
    ("run_id", "check"),
    [
        pytest.param(ALPHA, "numerics", id="values"),
        pytest.param("qnnpack/nn.BatchNorm2d/static-quint8/ptq/no_affine/exact@qnnpack", "lowered", id="raises"),
        pytest.param("fbgemm/F.group_norm/static-quint8/ptq/default/exact@fbgemm", "lowered", id="in float"),
        pytest.param("qnnpack/nn.Hardswish/static-quint8/ptq/batch0/exact@qnnpack", "crashes", id="crash"),
    ],
)
def test_a_least_script_shows_one_check_of_its_run_with_torch_alone(
    run_id: str, check: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "Search", partial(Search, attempts=40))  # enough for these runs
    monkeypatch.setattr(script, "REPEATED", 1)
    row = judged(run_id)
    text = least(find(run_id), row)
    assert len(text.splitlines()) <= MOST_LINES
    modules = {node.module for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)}
    assert {str(module).partition(".")[0] for module in modules} == {"torch"}
    path = tmp_path / "least.py"
    path.write_text(text)
    reproduction = reproduce(row, path, sys.executable)
    assert reproduction == Reproduction(run_id, row.failed, frozenset({check}), reproduction.output)
    assert check in row.failed


@pytest.mark.parametrize(
    ("run_id", "check", "lines"),
    [
        pytest.param(
            "qnnpack/F.interpolate/static-quint8/ptq/volume_same/exact@qnnpack",
            "stable",
            ["got = lowered(x.contiguous(memory_format=torch.channels_last_3d))"],
            id="layout",
        ),
        pytest.param(
            "qnnpack/F.dropout/static-qint8/ptq/every_code/codes@qnnpack",
            "numerics",
            ["lowered._scale_0.fill_(0.0625)", "lowered._input_zero_point_0.fill_(0)"],
            id="sweep",
        ),
        pytest.param(
            "fbgemm/nn.Tanh/static-quint8/ptq/input.scale_exact_match/constraints@x86",
            "constraints",
            ['expected = "exactly 0.0078125"', "got = [reference.get_buffer(inner.args[1].target).item()]"],
            id="constraint",
        ),
        pytest.param(
            "qnnpack/torch.cat/static-quint8/ptq/default/exact@qnnpack",
            "lowered",
            ['expected = "no aten::cat > aten::dequantize"'],
            id="conversion",
        ),
        pytest.param(
            "fbgemm/Tensor.shape/static-quint8/ptq/default/exact@fbgemm",
            "matched",
            ["entries = [one for one in config.configs if one.pattern != 'shape']"],
            id="no effect",
        ),
    ],
)
def test_each_kind_of_finding_has_a_form(run_id: str, check: str, lines: list[str]) -> None:
    run, row = find(run_id), judged(run_id)
    symptom = next(symptoms(run, row))
    matter = symptom.data_matter
    found = Search(symptom, attempts=8).least(
        starts(subject_of(run), recipes_for(symptom), matter, threads=1, varies=False)
    )
    assert found is not None
    assert symptom.check == check
    assert [line for line in lines if line not in found.body.splitlines()] == []


def test_a_run_that_conforms_has_no_least_script() -> None:
    with pytest.raises(NoLeastScript, match="conforms on this host"):
        least(find(LINEAR), judged(LINEAR))


def test_the_command_prints_the_whole_script_where_there_is_no_least_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuses(*_: object, **__: object) -> str:
        raise script.NoLeastForm("no least script shows it")

    arguments = argparse.Namespace(run=ALPHA, backend_config=None, quantizer=None, engine=[], isa=None, least=True)
    monkeypatch.setattr(script, "least", lambda run, row, isa: f"least of {run.id}, {', '.join(sorted(row.failed))}")
    assert repro_command(arguments) == 0
    assert capsys.readouterr().out == f"least of {ALPHA}, accuracy, numerics"
    monkeypatch.setattr(script, "least", refuses)
    assert repro_command(arguments) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f'"""{ALPHA}\n\nThis is the whole script. no least script shows it\n')
    compile(printed, "least.py", "exec")


def test_a_finding_without_least_form_is_named() -> None:
    row = row_of(find(LINEAR), LowSqnr("accuracy", 3.0, 20.0))
    with pytest.raises(NoLeastScript, match="no least script shows low-sqnr"):
        least(find(LINEAR), row)


def test_wrong_values_come_before_refusals_and_the_reference_model_comes_last() -> None:
    differ = CodesDiffer("numerics", 0, 1, 2, 3, ())
    findings = [CodesDiffer("reference", 0, 1, 2, 3, ()), Raises("lowered", "lower", "ValueError", "no"), differ]
    row = row_of(find(LINEAR), *findings)
    assert [symptom.finding for symptom in symptoms(find(LINEAR), row)] == [differ, findings[1], findings[0]]


def test_data_are_written_as_the_shortest_expression() -> None:
    assert Data("linspace", (2, 3), low=-1.0, high=1.0).source == "torch.linspace(-1.0, 1.0, 6).reshape((2, 3))"
    assert Data("linspace", (2,), low=-1.0, high=1.0).source == "torch.tensor([-1.0, 1.0])"
    assert literal(torch.full((5,), 0.1)) == "torch.full((5,), 0.1)"
    assert literal(torch.tensor([[0.1, 2.0]])) == "torch.tensor([[0.1, 2.0]])"


@pytest.mark.parametrize("layout", ["channels_last", "strided"])
def test_data_have_their_layout(layout: str) -> None:
    data = Data("ones", (2, 3, 4, 5), layout)
    assert torch.equal(data.tensor, torch.ones(2, 3, 4, 5))
    assert not data.tensor.is_contiguous()


def test_a_value_that_the_next_line_alone_uses_is_written_there() -> None:
    assert inlined(["y = self.op(x)", "y = y + x", "return y"]) == ("return self.op(x) + x",)
    assert inlined(["y = self.op(x)", "return y, y"]) == ("y = self.op(x)", "return y, y")
    assert inlined(["y = self.op(x)", "z = y + 1", "return z * y"])[0] == "y = self.op(x)"


def test_modules_in_a_row_are_written_without_a_class() -> None:
    (sequence,) = reductions.sequential(candidate())
    assert sequence.model_source == ""
    assert sequence.model_lines == "model = nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.ReLU())\n"
    assert candidate(forward=("y = self.op(x)", "return self.relu(y) + x")).chain is None


def test_parameters_of_a_sequence_are_named_by_position() -> None:
    weight = (("op.weight", torch.zeros(2)), ("relu.slope", torch.ones(1)))
    lines = candidate(sequential=True, parameters=weight).parameter_lines
    assert lines.splitlines() == [
        "model[0].weight.copy_(torch.tensor([0.0, 0.0]))",
        "model[1].slope.copy_(torch.tensor([1.0]))",
    ]


def test_a_size_changes_in_the_model_and_in_its_inputs_together() -> None:
    smaller = [one for one in reductions.sizes(candidate()) if "nn.Conv2d(1, 8" in one.init[0]]
    assert [one.inputs[0].shape for one in smaller] == [(2, 1, 6, 6)]


def test_arguments_of_a_call_are_left_out_but_training() -> None:
    inits = {one.init[0] for one in reductions.options(candidate())}
    assert "self.op = nn.Conv2d(4, 8, 3)" in inits
    dropout = candidate(init=(), forward=("return F.dropout(x, training=False)",))
    assert [*reductions.options(dropout)] == []


def test_a_call_gives_way_to_its_argument() -> None:
    lines = [one.forward for one in reductions.unwrapped(candidate())]
    assert lines == [("y = x", "y = self.relu(y)", "return y"), ("y = self.op(x)", "y = y", "return y")]


def test_literal_parameters_take_the_shapes_of_a_smaller_model() -> None:
    state = (("op.weight", torch.ones(8, 4, 3, 3)), ("op.bias", torch.ones(8)))
    smaller = candidate(init=("self.op = nn.Conv2d(4, 2, 1)",), forward=("return self.op(x)",), parameters=state)
    lines = fitted(smaller).parameter_lines.splitlines()
    assert lines == [
        "model.op.weight.copy_(torch.full((2, 4, 1, 1), 1.0))",
        "model.op.bias.copy_(torch.tensor([1.0, 1.0]))",
    ]
    with pytest.raises(ValueError, match=r"op.bias of shape \(8,\) does not fit \(9,\)"):
        fitted(replace(smaller, init=("self.op = nn.Conv2d(4, 9, 1)",), parameters=state[1:]))


def test_random_parameters_are_not_the_same_every_time() -> None:
    assert not search._same_every_time(candidate())
    assert search._same_every_time(candidate(parameters="ones"))
    assert search._same_every_time(candidate(init=("self.op = nn.BatchNorm2d(4)",), forward=("return self.op(x)",)))


class Counting(Symptom[RanInFloat]):
    """A script deviates whatever the candidate is."""

    @property
    def title(self) -> str:
        return "anything"

    @property
    def expectation(self) -> str:
        return "Expected: nothing."

    def bodies(self, candidate: Candidate) -> Iterator[str]:
        names = f"{candidate.operands[0]} = {candidate.inputs[0].source}\n"
        yield f'{names}print("DEVIATES lowered: it does")\n'


def test_a_search_is_bounded() -> None:
    symptom = Counting(find(LINEAR), RanInFloat("lowered", ()))
    linear = candidate(
        init=("self.op = nn.Linear(8, 8)",), forward=("return self.op(x)",), inputs=(Data("ones", (2, 8)),)
    )
    few = Search(symptom, attempts=5)
    assert few.least([linear]) is not None
    assert (few.attempts, len(few.accepted)) == (0, 5)
    shown = Search(symptom).least([linear])
    assert shown is not None
    assert shown.candidate.inputs[0].shape == (1, 1)
    assert shown.candidate.chain == {"op": "nn.Linear(1, 1)"}


def test_a_candidate_whose_float_model_refuses_its_inputs_is_none() -> None:
    symptom = Counting(find(LINEAR), RanInFloat("lowered", ()))
    refused = candidate(init=("self.op = nn.Linear(3, 8)",), forward=("return self.op(x)",))
    assert Search(symptom).least([refused]) is None


def test_an_exception_is_alike_but_for_figures() -> None:
    finding = Raises("lowered", "lower", "ValueError", "axis 3 of size 17")
    assert raised_alike(finding, {"got": "ValueError: axis 1 of size 2"})
    assert not raised_alike(finding, {"got": "ValueError: no axis"})
    assert Raising(find(LINEAR), finding).check == "lowered"


def test_a_script_that_writes_nothing_down_conforms() -> None:
    assert not deviates("print('CONFORMS')\n", "numerics")
    assert deviates("import sys\nprint('DEVIATES numerics: values')\nsys.exit(1)\n", "numerics")
    assert not deviates("print('DEVIATES numerics: values')\n", "numerics")


def test_a_script_leaves_no_trace_in_this_process() -> None:
    threads = torch.get_num_threads()
    printed, scope = executed("torch.set_grad_enabled(False)\ntorch.set_num_threads(2)\nx = torch.ones(2)\nprint(x)\n")
    assert printed == "tensor([1., 1.])\n"
    assert torch.equal(scope["x"], torch.ones(2))
    assert torch.is_grad_enabled()
    assert threads == 1 or torch.get_num_threads() == 1


def test_a_script_states_the_limit_of_the_instruction_set() -> None:
    text = whole("title", "Expected: nothing.", "x = torch.ones(2)\n", "avx2")
    assert text.index("os.environ.update") < text.index("import torch")


def test_long_lines_continue_inside_of_their_brackets() -> None:
    line = f"x = torch.tensor([{', '.join(['0.125'] * 60)}])\n"
    assert max(map(len, folded(line).splitlines())) <= 120
    assert ast.dump(ast.parse(folded(line))) == ast.dump(ast.parse(line))


def test_the_config_of_a_script_is_that_of_the_run() -> None:
    assert "config = get_qnnpack_backend_config()\n" in least_lines(find(LINEAR), candidate()).setting
    assert WrongValues(find(LINEAR), LowSqnr("accuracy", 1.0, 2.0)).data_matter

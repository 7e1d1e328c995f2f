"""Engines of third parties, which `--engine module:attribute` names."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from conformance.cases.claims import backend
from conformance.cases.runs import default_form, runs, select
from conformance.configs.engines import ENGINE_TABLE, EngineSpec
from conformance.engines.availability import probe
from conformance.engines.registry import engine, engine_expression, engine_name
from conformance.engines.torch_engine import TorchEngine
from conformance.errors import UsageError
from conformance.execution.batch import Judged, judge_runs
from conformance.models import build, fx
from tests.runs_by_id import run

NPU = """
from conformance.engines.torch_engine import TorchEngine

class Npu(TorchEngine):
    name = "npu"
    ahead_of_time = True

MADE = Npu()

def make():
    return MADE

class Fbgemm(Npu):
    name = "fbgemm"

class Nameless(Npu):
    name = "npu@home"

class Raising(Npu):
    def __init__(self):
        raise OSError("no device")

class Cold(Npu):
    def warm_up(self):
        raise OSError("no device")

class Absent(Npu):
    device = "privateuseone"

class NoProgram(Npu):
    name = "no-program"
    def compile(self, model, inputs):
        pass

class NoExecution(Npu):
    name = "no-execution"
    def execute(self, program, inputs):
        pass

class Named(Npu):
    name = "named"
    def kernels(self, program):
        return "npu"

class Bare:
    name = "bare"
"""


@pytest.fixture
def npu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The module of a third party, in the current folder, and the table of engines as it was afterwards."""
    (tmp_path / "npu.py").write_text(NPU)
    monkeypatch.chdir(tmp_path)
    before = dict(ENGINE_TABLE)
    yield tmp_path
    ENGINE_TABLE.clear()
    ENGINE_TABLE.update(before)
    sys.modules.pop("npu", None)


@pytest.mark.parametrize(
    ("attribute", "expression"), [("Npu", "npu.Npu()"), ("MADE", "npu.MADE"), ("make", "npu.make()")]
)
def test_an_engine_is_an_object_or_what_makes_one(npu: Path, attribute: str, expression: str) -> None:
    assert engine_name(f"npu:{attribute}") == "npu"
    assert engine_name(f"npu:{attribute}") == "npu"
    assert engine("npu").name == "npu"
    assert engine_expression("npu") == ("npu", expression)


def test_what_an_engine_says_of_itself_is_in_the_table(npu: Path) -> None:
    engine_name("npu:Npu")
    assert ENGINE_TABLE["npu"] == EngineSpec("npu:Npu", reduced_range=False, ahead_of_time=True)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("npu:", "--engine 'npu:': write it as module:attribute"),
        (
            "npus:Npu",
            "--engine 'npus:Npu': ModuleNotFoundError: No module named 'npus'; it has to be importable from here",
        ),
        ("npu:Raising", "--engine 'npu:Raising' raises OSError: no device; it is called without arguments"),
        ("npu:Cold", "--engine 'npu:Cold': warm_up raises OSError: no device"),
        ("npu:Fbgemm", "--engine 'npu:Fbgemm': its name 'fbgemm' is one of torch's own: give it a name of its own"),
        ("npu:Nameless", "--engine 'npu:Nameless': its name is 'npu@home': name it with letters, digits and _.- alone"),
        (
            "npu:Bare",
            "--engine 'npu:Bare': Bare has no fixed_shapes, warm_up, unavailable, scope, convert, compile, execute, "
            "execute_again, weight_bytes, reload: make it a subclass of conformance.engines.torch_engine.TorchEngine",
        ),
    ],
)
def test_what_is_no_engine_is_refused_in_one_line(npu: Path, path: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        engine_name(path)
    assert str(raised.value) == message


def test_two_engines_have_two_names(npu: Path) -> None:
    engine_name("npu:Npu")
    with pytest.raises(UsageError, match=r"its name 'npu' is that of 'npu:Npu': give it a name of its own"):
        engine_name("npu:MADE")


@pytest.mark.parametrize("ending", ["os.abort()", "os._exit(3)"])
def test_an_engine_that_ends_its_process_is_refused(npu: Path, ending: str) -> None:
    (npu / "deadly.py").write_text(f"import os\n{ending}\n")
    with pytest.raises(UsageError, match="--engine 'deadly:Npu': the process ends as it is loaded: "):
        engine_name("deadly:Npu")
    assert "deadly" not in sys.modules


def test_an_engine_without_its_device_is_unavailable(npu: Path) -> None:
    name = engine_name("npu:Absent")
    assert "privateuseone" in str(probe(name))
    assert engine("npu").unavailable() is not None


def test_only_torchs_own_engines_have_sweeps_over_codes_without_being_asked(npu: Path) -> None:
    name = engine_name("npu:Npu")
    every = [*runs(backend("fbgemm"), ("fbgemm", name))]
    assert {run.engine for run in every if run.profile == "codes"} == {"fbgemm", name}
    assert {run.engine for run in select(every, []) if run.profile == "codes"} == {"fbgemm"}


class Doubled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + x


@pytest.fixture
def quantized() -> nn.Module:
    """A module that gives the codes of its input, dequantized."""

    class Quantized(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(torch.quantize_per_tensor(x, 0.5, 10, torch.quint8)).dequantize()

    return Quantized()


def traced(module: nn.Module) -> torch.fx.GraphModule:
    return torch.fx.symbolic_trace(module)


def engine_with(**attributes: object) -> TorchEngine:
    made: Callable[[], TorchEngine] = type("Made", (TorchEngine,), {"name": "made", **attributes})
    return made()


def test_programs_are_the_modules_themselves_on_the_cpu() -> None:
    module = traced(Doubled())
    assert engine_with().compile(module, [torch.ones(2)]) is module


def test_a_compiled_module_shows_codes_and_kernels_as_the_original_one_does(quantized: nn.Module) -> None:
    x = torch.tensor([[-1.0, 0.3, 7.9]])
    plain, compiling = engine_with(), engine_with(compiler="aot_eager")
    program = compiling.compile(traced(quantized), [x])
    assert compiling.unavailable() is None
    expected, execution = plain.execute(traced(quantized), [x]), compiling.execute(program, [x])
    (output,), (other,) = execution.outputs, expected.outputs
    assert output.quantized is not None
    assert other.quantized is not None
    assert output.quantized.int_repr().tolist() == other.quantized.int_repr().tolist()
    assert output.quantized.q_zero_point() == 10
    assert execution.listed() == expected.listed() == ["aten.relu"]
    assert program(x)[0].tolist() == output.values.tolist()


def test_values_off_the_grid_have_no_codes(quantized: nn.Module) -> None:
    def off(graph: torch.fx.GraphModule, inputs: object) -> Callable[..., list[torch.Tensor]]:
        return lambda *given: [y + 0.01 for y in graph(*given)]

    compiling = engine_with(compiler=off)
    x = torch.ones(1, 3)
    (output,) = compiling.execute(compiling.compile(traced(quantized), [x]), [x]).outputs
    assert output.quantized is None


def test_programs_of_another_device_take_and_give_tensors_of_the_cpu() -> None:
    meta = engine_with(device="meta")
    with pytest.raises(NotImplementedError, match="meta"):  # it moves the output back, and meta tensors have no data
        meta.compile(traced(Doubled()), [torch.ones(2)])(torch.ones(2))


def test_a_lowering_that_is_no_module_says_which_methods_it_needs() -> None:
    lowering = engine_with(lower=lambda self, model: lambda *inputs: model(*inputs))
    program = lowering.compile(traced(Doubled()), [torch.ones(2)])
    assert program(torch.ones(2)).tolist() == [2.0, 2.0]
    with pytest.raises(TypeError, match="lower returns no module: override weight_bytes and reload of Made"):
        lowering.weight_bytes(program)


def test_stated_kernels_take_the_place_of_observed_ones() -> None:
    from conformance.models.trace import Kernel

    stating = engine_with(kernels=lambda self, program: [Kernel("npu.double", True, False)])
    execution = stating.execute(traced(Doubled()), [torch.ones(2)])
    assert execution.listed() == ["npu.double"]
    assert execution.outputs[0].values.tolist() == [2.0, 2.0]


def test_the_reference_engine_runs_the_reference_model(npu: Path) -> None:
    name = engine_name("conformance.engines.reference:ReferenceEngine")
    subject = build.subject(default_form(run("fbgemm/nn.Linear/static-quint8/ptq/default/exact@fbgemm")))
    prepared = fx.prepare(subject, subject.run.backend.config)
    fx.calibrate(prepared, subject)
    used = engine(name)
    program = used.compile(used.convert(prepared, subject.run.backend.config), subject.fresh_inputs())
    execution = used.execute(program, subject.fresh_inputs())
    assert isinstance(execution.outputs[0].quantized, torch.Tensor)
    expected = fx.reference(prepared, subject.run.backend.config)(*subject.fresh_inputs())
    assert torch.equal(execution.outputs[0].values, expected)
    assert execution.names() == ["reference"]
    assert not [kernel for kernel in execution.kernels if kernel.in_float]


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        ("NoProgram", "lower raises TypeError: compile() of the engine returns None"),
        ("NoExecution", "execute raises TypeError: execute() of the engine returns NoneType, which is no Execution"),
        ("Named", "execute raises TypeError: execute() of the engine lists str as kernels"),
    ],
)
def test_an_engine_that_returns_something_else_does_not_conform(attribute: str, message: str, npu: Path) -> None:
    name = engine_name(f"npu:{attribute}")
    (judged,) = judge_runs([run(f"fbgemm/nn.Linear/static-quint8/ptq/default/exact@{name}")], lambda _: None)
    assert isinstance(judged, Judged)
    assert judged.row.verdict == "deviates"
    assert judged.row.detail == f"lowered: {message}"

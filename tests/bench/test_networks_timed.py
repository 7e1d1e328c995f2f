"""Networks end to end: their cases, programs that are converted once, memory, and times of layers."""

import gc
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.bench import footprint, layer_times, networks, programs
from conformance.bench.layer_times import node_keys
from conformance.bench.limits import fastest
from conformance.bench.networks import BATCHES, NETWORKS, cases, opened
from conformance.bench.programs import SCRIPT, Programs, folder, written
from conformance.bench.saved import loaded, save
from conformance.bench.timings import CACHE, EAGER, FLOAT, Counts, LayerTime, Memory, NetworkCase
from conformance.bench.worker import Server
from conformance.engines.native import NATIVE, NativeEngine
from conformance.models import fx
from conformance.networks import zoo
from conformance.networks.network import Network, image
from conformance.results.codec import decode_fields

TESTS = Path(__file__).parents[1]
MEASURE_PEAK = footprint.peak
KERNELS = ("quantized.conv2d_relu", "quantized.conv2d", "quantized.add_relu")
with_proc = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's /proc")


class Scaled(nn.Module):
    """Multiplies by a number that is taken from the input: a trace has that of the traced input."""

    def forward(self, x: Tensor) -> Tensor:
        return x * float(x.flatten()[0])


def scaled() -> nn.Module:
    return Scaled().eval()


def one_linear(width: int) -> nn.Module:
    return nn.Linear(width, width).eval()


@pytest.fixture(autouse=True)
def corpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A corpus of small networks, whose programs are in a folder of the test's own. Memory is measured by tests of memory."""
    sources = {
        "tiny": "audited_networks:residual",
        "branching": "audited_networks:branching",
        "scaled": f"{__name__}:scaled",
        "missing": "no_such_package:network",
    }
    for name, source in sources.items():
        monkeypatch.setitem(zoo.NETWORKS, name, Network(name, "test", "own", source, {}, image(12)))
    monkeypatch.setattr(footprint, "peak", lambda *arguments: 1000)
    monkeypatch.setattr(layer_times, "SECONDS", 0.05)
    monkeypatch.setenv(CACHE, str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    # opening sets these
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")


def answered(form: str, *, name: str = "tiny", items: int = 2) -> dict[str, Any]:
    """The answer to the request that first opens a case."""
    _, answer = opened(f"networks/{name}/batch_{items}/{form}", 1, judged=True)
    return answer


def layers_of(form: str) -> dict[str, LayerTime]:
    layers = json.loads(json.dumps(answered(form)["layers"]))
    return {layer["name"]: decode_fields(LayerTime, layer) for layer in layers}


def refused(*arguments: Any, **options: Any) -> Any:
    raise AssertionError("a second conversion")


def test_networks_are_of_the_corpus_and_differ() -> None:
    assert len({*NETWORKS}) == 12
    assert {*NETWORKS} <= {*zoo.NETWORKS}
    assert len({zoo.NETWORKS[name].task for name in NETWORKS}) >= 4


def test_cases_are_forms_on_engines_and_in_float() -> None:
    forms = ("torchscript@float", "compile@float", "eager@x86", "torchscript@x86")
    expected = [(f"networks/resnet18/batch_{items}/{form}", "all") for items in (1, 8) for form in forms]
    assert [case for case in cases() if case in expected] == expected
    assert {case_id.rpartition("@")[2] for case_id, _ in cases()} == {FLOAT, "fbgemm", "onednn", "qnnpack", "x86"}
    assert len(cases()) == len(NETWORKS) * len(BATCHES) * (2 + 2 * 4) * 2


def test_an_id_has_the_whole_case() -> None:
    case = NetworkCase("resnet18", 8, EAGER, "x86")
    assert case.id == "networks/resnet18/batch_8/eager@x86"
    assert NetworkCase.of(case.id) == case


def test_the_lowered_model_is_timed_beside_the_float_model() -> None:
    timed, answer = opened("networks/tiny/batch_8/eager@x86", 1, judged=True)
    assert timed is not None
    with torch.no_grad(), timed.engine.scope(), fx.quiet():
        lowered, floating = (call() for call in timed.calls())
        expected = zoo.network("tiny").build()(*timed.inputs)
    assert isinstance(lowered, Tensor)
    assert isinstance(floating, Tensor)
    torch.testing.assert_close(floating, expected)
    assert len(floating) == 8
    assert not torch.equal(lowered, floating)
    torch.testing.assert_close(lowered, floating, atol=0.1, rtol=0.1)
    counts = decode_fields(Counts, json.loads(json.dumps(answer["counts"])))
    assert {*KERNELS} <= {*counts.kernels}
    assert (counts.quantize, counts.dequantize) == (1, 1)
    assert 0 < counts.weight_bytes < 4 * (3 * 8 * 9 + 8 * 8 * 9)


def test_layers_have_the_names_of_modules_and_the_operators_of_both_models() -> None:
    layers = layers_of("eager@x86")
    convolution = layers["stem.0"]
    assert convolution.pattern == "nn.Conv2d+nn.BatchNorm2d+nn.ReLU"
    assert convolution.kernels == ("quantized.conv2d_relu",)
    assert {"stem.0", "branch.0", "add", "pool", "head"} <= {*layers}
    assert all(layer.seconds > 0 for layer in layers.values())
    assert {name for name, layer in layers.items() if layer.conversion} == {"x.quantize_per_tensor", "head.dequantize"}
    assert all((layer.float_seconds > 0) is not layer.conversion for layer in layers.values())


def test_each_float_operator_counts_for_one_layer() -> None:
    answered("eager@x86")
    known = Programs("tiny")
    counted = [node for layer in known.layers("x86") for node in layer.floating]
    assert sorted(counted) == sorted(node_keys(known.traced().graph).values())
    (fused,) = (layer.floating for layer in known.layers("x86") if layer.name == "stem.0")
    assert [*fused] == ["call_module stem.0 1", "call_module stem.1 1", "call_module stem.2 1"]


def test_layers_take_about_as_long_as_the_call() -> None:
    timed, answer = opened("networks/tiny/batch_8/eager@x86", 1, judged=True)
    assert timed is not None
    with torch.no_grad(), timed.engine.scope(), fx.quiet():
        latencies = [fastest(call, 5) for call in timed.calls()]
    for kind, latency in zip(("seconds", "float_seconds"), latencies, strict=True):
        assert 0.25 < sum(layer[kind] for layer in answer["layers"]) / latency < 4


@pytest.mark.parametrize("engine", ["x86", FLOAT])
def test_torchscript_computes_what_its_model_does(engine: str) -> None:
    timed, answer = opened(f"networks/tiny/batch_2/torchscript@{engine}", 1, judged=True)
    assert timed is not None
    assert isinstance(timed.program, torch.jit.ScriptModule)
    assert not [*timed.program.parameters()], "frozen"
    assert answer["layers"] == []
    with torch.no_grad(), timed.engine.scope(), fx.quiet():
        model = Programs("tiny").lowered(engine) if engine != FLOAT else timed.floating
        torch.testing.assert_close(timed.program(*timed.inputs), model(*timed.inputs))
        assert timed.engine.weight_bytes(timed.program) == answer["counts"]["weight_bytes"] > 0
    assert ({*KERNELS} <= {*answer["counts"]["kernels"]}) == (engine != FLOAT)


def test_a_network_is_converted_once_for_all_forms_and_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    answered("eager@x86")
    monkeypatch.setattr(programs, "convert", refused)
    monkeypatch.setattr(Network, "build", refused)
    for form in ("eager@x86", "torchscript@x86"):
        assert "counts" in answered(form, items=3)
    timed, answer = opened("networks/tiny/batch_2/torchscript@x86", 1, judged=False)
    assert (timed is not None, answer) == (True, {})


def test_torchscript_is_traced_once_for_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    answered("torchscript@float")
    monkeypatch.setattr(torch.jit, "trace", refused)
    assert "counts" in answered("torchscript@float")
    with pytest.raises(AssertionError):
        answered("torchscript@float", items=3)


def test_another_build_of_torch_has_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    own = folder()
    monkeypatch.setattr(torch, "__file__", "/elsewhere/torch/__init__.py")
    assert folder() != own
    assert folder().parent == own.parent


def test_without_a_shared_folder_a_process_has_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(CACHE)
    assert folder() == folder()
    assert tmp_path not in folder().parents


def test_a_file_is_complete_or_missing(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"

    def interrupted(aside: Path) -> None:
        aside.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        written(path, interrupted)
    assert not path.exists()
    assert written(path, lambda aside: aside.write_text("all")).read_text() == "all"
    assert written(path, lambda aside: aside.write_text("again")).read_text() == "all"


@pytest.mark.parametrize(
    ("name", "form", "reason"),
    [
        ("scaled", "torchscript@float", "tracing changes the result"),
        ("branching", "eager@x86", "prepare raises"),
        ("missing", "eager@x86", "no_such_package is not installed"),
    ],
)
def test_what_cannot_be_timed_has_a_reason(name: str, form: str, reason: str) -> None:
    assert reason in answered(form, name=name)["reason"]


def test_a_missing_engine_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NativeEngine, "unavailable", lambda self: "no such instructions")
    assert answered("eager@x86") == {"reason": "engine x86 is unavailable: no such instructions"}
    assert "counts" in answered("torchscript@float")


def test_a_model_that_does_not_survive_saving_is_not_timed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def changed(path: Path) -> Any:
        model = loaded(path)
        return (lambda *inputs: model(*inputs) + 1) if "eager@x86" in path.name else model

    monkeypatch.setattr(programs, "loaded", changed)
    assert answered("eager@x86") == {"reason": "saving changes the result"}
    assert [*tmp_path.rglob("layers@x86.json")]
    assert not [*tmp_path.rglob("*eager@x86.pt")]


def test_without_a_compiler_torch_compile_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import cpp_builder
    from torch._inductor.exc import InvalidCxxCompiler

    def missing() -> str:
        raise InvalidCxxCompiler

    monkeypatch.setattr(cpp_builder, "get_cpp_compiler", missing)
    assert answered("compile@float") == {"reason": "torch.compile finds no C++ compiler"}


def test_a_compiled_model_has_neither_kernels_nor_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks, "_no_compiler", lambda threads: None)
    calls: list[nn.Module] = []

    def compiled(model: nn.Module, dynamic: bool) -> Callable[..., Any]:
        def program(*inputs: Tensor) -> Any:
            calls.append(model)
            return model(*inputs)

        return program

    monkeypatch.setattr(torch, "compile", compiled)
    answer = answered("compile@float")
    assert len(calls) > 3, "warmed up"
    assert (answer["counts"]["kernels"], answer["memory"], answer["layers"]) == ((), None, [])
    assert answer["counts"]["operations"] > 0
    monkeypatch.setattr(torch, "compile", lambda model, dynamic: lambda *inputs: model(*inputs) * 2)
    assert answered("compile@float") == {"reason": "compilation changes the result"}


@with_proc
def test_memory_is_that_of_saved_programs_in_the_same_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footprint, "peak", MEASURE_PEAK)
    for form in ("eager@x86", "torchscript@x86", "torchscript@float"):
        memory = decode_fields(Memory, answered(form)["memory"])
        assert min(memory.quantized_peak, memory.floating_peak) > 0
        base = EAGER if form.endswith(FLOAT) else form.partition("@")[0]
        saved = {path.name: path.stat().st_size for path in folder().rglob("*@*t")}
        suffix = {EAGER: "pt", SCRIPT: "torchscript"}
        assert memory.quantized_saved == saved[f"{form}.{suffix[form.partition('@')[0]]}"]
        assert memory.floating_saved == saved[f"{base}@float.{suffix[base]}"]


def test_the_package_of_a_network_is_imported_before_memory_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = {}

    def peak(program: Path, inputs: Path, engine: str | None, modules: list[str]) -> int:
        imported[program.name] = modules
        return 1000

    monkeypatch.setattr(footprint, "peak", peak)
    answered("eager@x86")
    answered("torchscript@x86")
    assert all("audited_networks" in imported[f"eager@{engine}.pt"] for engine in ("x86", FLOAT))
    assert imported["torchscript@x86.torchscript"] == []


@with_proc
def test_the_peak_has_the_weights_and_the_activations(tmp_path: Path) -> None:
    inputs = tmp_path / "inputs.pt"
    peaks = {}
    for width, items in ((10, 1), (3000, 1), (3000, 4000)):
        program = tmp_path / f"{width}.pt"
        save(one_linear(width), program)
        torch.save((torch.ones(items, width),), inputs)
        peaks[width, items] = MEASURE_PEAK(program, inputs, None)
    small, weights, activations = (peak or 0 for peak in peaks.values())
    assert weights - small == pytest.approx(4 * 3000**2, rel=0.4)
    assert activations - weights == pytest.approx(4 * 3000 * 4000, rel=0.4)


@with_proc
def test_memory_that_imports_have_freed_does_not_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "wasteful.py").write_text("memory = bytes(1) * (400 << 20)\ndel memory\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    save(one_linear(10), tmp_path / "program.pt")
    torch.save((torch.ones(1, 10),), tmp_path / "inputs.pt")
    peak = MEASURE_PEAK(tmp_path / "program.pt", tmp_path / "inputs.pt", None, ["wasteful"])
    assert 0 < (peak or 0) < 200 << 20


def test_there_is_no_peak_where_it_cannot_be_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "broken.pt").write_text("no program")
    torch.save((torch.ones(1),), tmp_path / "inputs.pt")
    monkeypatch.setattr(footprint, "peak", MEASURE_PEAK)
    assert footprint.peak(tmp_path / "broken.pt", tmp_path / "inputs.pt", None) is None
    monkeypatch.setattr(footprint, "_RESET", tmp_path / "proc")
    monkeypatch.setattr(subprocess, "run", refused)
    assert footprint.peak(tmp_path / "broken.pt", tmp_path / "inputs.pt", None) is None
    assert answered("torchscript@float")["memory"] is None


def test_a_lowered_convolution_is_a_whole_module_after_loading(tmp_path: Path) -> None:
    with NATIVE["x86"].scope(), fx.quiet():
        convolution = torch.ao.nn.quantized.Conv2d(3, 4, 3)  # type: ignore[no-untyped-call]
        save(convolution, tmp_path / "module.pt")
        again = loaded(tmp_path / "module.pt")
        x = torch.quantize_per_tensor(torch.ones(1, 3, 5, 5), 0.1, 0, torch.quint8)
        assert [*again.modules()] == [again]
        assert torch.equal(again(x).int_repr(), convolution(x).int_repr())


def test_a_worker_answers_for_networks_as_for_runs() -> None:
    try:
        server = Server("1")
        answer = server.answer({"do": "judge", "id": "networks/tiny/batch_1/eager@x86"})
        assert {*answer} == {"counts", "memory", "layers"}
        rounds = server.answer({"do": "time", "rounds": 2, "floating": True})
        # a disturbed round is measured again
        assert len(rounds["quantized"]) == len(rounds["floating"]) >= 2
        assert "floating" not in server.answer({"do": "time", "rounds": 2, "floating": False})
        assert server.answer({"do": "open", "id": "networks/scaled/batch_1/torchscript@float"}) == {
            "reason": "tracing changes the result"
        }
        assert server.timed is None
    finally:
        gc.unfreeze()

"""The command line: claims, runs, reproductions, and one line for wrong usage."""

import json
import platform
import shlex
import subprocess
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from conformance.__main__ import main
from conformance.commands.runs import find
from conformance.host import guard

ROOT = Path(__file__).parent.parent
LINEAR = "qnnpack/nn.Linear/static-quint8/ptq/called_twice/exact@qnnpack"
CRASH = "qnnpack/nn.Hardswish/static-quint8/ptq/batch0/exact@qnnpack"
PROJECTION = "qnnpack/nn.LSTM/dynamic-quint8/ptq/projection/exact@qnnpack"
BROADCAST = "onednn/operator.add(*,nn.Conv2d)/static-quint8/ptq/broadcast/exact@onednn"
NATIVE = "torch.ao.quantization.backend_config.native:get_native_backend_config"
COUNTS = {"qnnpack": (190, 404), "fbgemm": (192, 225), "onednn": (221, 244), "executorch": (84, 172)}

Capture = pytest.CaptureFixture[str]


def test_claims_lists_every_backend_with_its_counts(capsys: Capture) -> None:
    assert main(["claims"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name, (patterns, claims) in COUNTS.items():
        start = lines.index(f"{name}: {patterns} patterns, {claims} claims") + 1
        ids = lines[start : start + claims]
        assert len(set(ids)) == claims
        assert all(claim.startswith(f"{name}/") for claim in ids)
    assert len(lines) == sum(claims + 1 for _, claims in COUNTS.values())


def test_claims_lists_each_selected_backend_once(capsys: Capture) -> None:
    assert main(["claims", "--backend", "onednn", "--backend", "qnnpack", "--backend", "onednn"]) == 0
    heads = [line for line in capsys.readouterr().out.splitlines() if "patterns" in line]
    assert heads == ["onednn: 221 patterns, 244 claims", "qnnpack: 190 patterns, 404 claims"]


def test_claims_as_json_have_patterns_engines_coverage_and_runs(capsys: Capture) -> None:
    assert main(["claims", "--json"]) == 0
    backends = json.loads(capsys.readouterr().out)
    assert {backend["name"]: (backend["patterns"], backend["claims"]) for backend in backends} == COUNTS
    assert [backend["engines"] for backend in backends] == [["qnnpack"], ["fbgemm", "x86"], ["onednn"], ["executorch"]]
    for backend in backends:
        assert len(backend["list"]) == backend["claims"]
        assert all(claim["covered"] and claim["runs"] >= len(backend["engines"]) for claim in backend["list"])
        first = backend["list"][0]
        assert first["id"] == f"{backend['name']}/{first['pattern']}/{first['dtype_config']}"


def test_claims_with_their_runs_are_those_of_the_committed_lists(capsys: Capture) -> None:
    assert main(["claims", "--backend", "fbgemm", "--runs"]) == 0
    assert capsys.readouterr().out == (Path(__file__).parent / "cases" / "runs" / "fbgemm.txt").read_text(
        encoding="utf-8"
    )


def test_claims_of_a_third_party_config(capsys: Capture) -> None:
    assert main(["claims", "--backend-config", NATIVE]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("native: ")
    assert lines[1].startswith("native/")


@pytest.mark.parametrize("arguments", [[], ["--help"], ["show", "--help"], ["golden", "check", "--help"]])
def test_help_loads_neither_torch_nor_hypothesis(arguments: list[str]) -> None:
    code = (
        "import sys; from conformance.__main__ import main\n"
        f"try: status = main({arguments})\nexcept SystemExit as error: status = error.code\n"
        "sys.exit(status or 9 * bool({'torch', 'hypothesis'} & {*sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: ")


def test_without_a_command_help_is_printed(capsys: Capture) -> None:
    assert main([]) == 0
    out, err = capsys.readouterr()
    of_rows = ("report", "findings", "merge", "diff", "schema", "store", "trend", "since", "first-bad")
    for command in ("claims", "show", "repro", "golden", "bench", *of_rows):
        assert f"\n    {command} " in out
    assert err == ""


def test_output_has_escapes_for_what_its_encoding_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "named_cafe.py").write_text(
        "from conformance.configs.lone import get_lone_backend_config\n"
        "CONFIG = get_lone_backend_config().set_name('caf\\xe9')\n"
    )
    monkeypatch.chdir(tmp_path)
    for encoding, name in (("ascii", rb"caf\xe9"), ("utf-8", "café".encode())):
        monkeypatch.setattr(sys, "stdout", TextIOWrapper(written := BytesIO(), encoding))
        assert main(["claims", "--backend-config", "named_cafe:CONFIG"]) == 0
        assert written.getvalue().startswith(name + b": ")


def test_a_command_runs_without_stdout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["claims", "--backend", "qnnpack"]) == 0


@pytest.mark.parametrize(
    ("raised", "status", "line"),
    [
        (KeyboardInterrupt, 130, "conformance: interrupted\n"),
        (MemoryError, 2, "conformance: error: out of memory: give smaller files, or raise the limit (ulimit -v)\n"),
    ],
)
def test_ctrl_c_and_too_little_memory_are_one_line(
    raised: type[BaseException], status: int, line: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def ended(_: object) -> None:
        raise raised

    monkeypatch.setattr("conformance.commands.claims.claims_command", ended)
    assert main(["claims"]) == status
    assert capsys.readouterr() == ("", line)


def test_a_reader_that_closes_the_pipe_early_is_no_error() -> None:
    command = f"{shlex.quote(sys.executable)} -m conformance claims | head -1"
    done = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("qnnpack: 190 patterns, 404 claims\n", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["claim"], "unknown command 'claim': did you mean claims? Choose from claims, lint, show, repro, "),
        (["nonsense"], "unknown command 'nonsense': choose from claims, lint, show, repro, "),
        (["golden"], "the following arguments are required: ACTION"),
        (["golden", "upgrade"], "unknown action 'upgrade': did you mean update? Choose from check, update, diff"),
        (["diff", "a", "b", "--format", "html"], "unknown --format 'html': choose from text, markdown, json"),
        (
            ["claims", "--backend", "fbgem"],
            "unknown backend 'fbgem': did you mean fbgemm? Choose from qnnpack, fbgemm, onednn, executorch, xnnpack",
        ),
        (["claims", "--backend-config", "json"], "write it as module:attribute"),
        (["claims", "--backend-config", "json:nope"], "AttributeError"),
        (["claims", "--backend-config", "json:dumps"], "TypeError"),
        (["claims", "--backend-config", "time:time"], "is of type float; it has to be a BackendConfig"),
        (["claims", "--backend", "qnnpack", "--backend-config", NATIVE], "not allowed with"),
        (["show", "nope/nn.Linear"], "unknown backend 'nope'"),
        (
            ["show", "qnnpak/nn.Linear"],
            "unknown backend 'qnnpak': did you mean qnnpack or xnnpack? Choose from",
        ),
        (["show", LINEAR.replace("@qnnpack", "@nope")], "unknown engine 'nope': choose from "),
        (
            ["show", LINEAR.replace("@qnnpack", "@qnpack")],
            "unknown engine 'qnpack': did you mean qnnpack? Choose from ",
        ),
        (["repro", LINEAR.replace("called_twice", "caled_twice")], f"did you mean {LINEAR}"),
        (["golden", "check", "--case", LINEAR.replace("called_", "caled_")], f"did you mean {LINEAR} or "),
        (
            ["show", "qnnpack/nn.Linear/static-quint8/*"],
            "runs: qnnpack/nn.Linear/static-quint8/ptq/default/exact@qnnpack",
        ),
        (["show", "--isa", "mmx", LINEAR], "--isa 'mmx': choose from avx2"),
        (["repro", "--isa", "avx2", LINEAR], "torch is loaded already; set ONEDNN_MAX_CPU_ISA=AVX2"),
    ],
)
def test_wrong_usage_is_one_line_with_status_2(arguments: list[str], message: str, capsys: Capture) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("conformance: error: ")
    assert err.count("\n") == 1
    assert message in err


def test_a_usage_error_has_no_traceback() -> None:
    command = [sys.executable, "-m", "conformance", "claims", "--backend", "nope"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("conformance: error: unknown backend 'nope': choose from qnnpack, ")
    assert done.stderr.count("\n") == 1


def test_a_run_is_found_by_its_id_by_a_glob_and_on_another_engine() -> None:
    assert find(LINEAR).id == LINEAR
    assert find("*/nn.Linear/static-quint8/ptq/called_twice/exact@qnn*").id == LINEAR
    assert find(LINEAR.replace("@qnnpack", "@onednn")).engine == "onednn"


def test_an_id_with_an_asterisk_is_an_id_before_it_is_a_glob() -> None:
    wildcard = "onednn/torch.add(*,nn.Conv2d)/static-quint8/ptq/default/exact@onednn"
    assert find(wildcard).id == wildcard


def test_show_prints_source_graphs_kernels_numbers_and_checks(capsys: Capture) -> None:
    assert main(["show", LINEAR]) == 0
    out = capsys.readouterr().out
    titles = [line[3:] for line in out.splitlines() if line.startswith("== ")]
    assert titles == [
        "model", "quantization", "observed model", "observers", "reference model",
        "quantization parameters of the reference model", "lowered model", "kernels in order",
        "conversions inside of kernels", "output 0", "checks", "ledger",
    ]  # fmt: skip
    assert "self.op = nn.Linear(8, 8)" in out
    assert "activation_post_process_0: PowerOfTwoObserver quint8 [0, 255] scale 0.0625 zero point 128" in out
    assert "op.weight_scale: 0.0078125" in out
    assert "quantized  quantized.linear" in out
    assert "index                          got        golden           exact" in out
    assert "numerics    fail" in out
    assert "accuracy    pass" in out


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors raise no signal for a division by zero")
def test_show_survives_a_crash_and_prints_the_models_before_it(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["show", CRASH]) == 0
    out = capfd.readouterr().out
    assert "== lowered model" in out
    assert "QuantizedHardswish" in out
    assert "== crashes\nthe process dies: SIGFPE" in out


@pytest.mark.parametrize("command", ["show", "repro"])
def test_an_unavailable_engine_is_reported_with_status_1(command: str, capsys: Capture) -> None:
    assert main([command, "fbgemm/nn.Conv2d/static-quint8/ptq/default/exact@executorch"]) == 1
    out, err = capsys.readouterr()
    assert "engine executorch is unavailable here: " in out + err
    assert "Traceback" not in out + err


def test_repro_prints_a_script(capsys: Capture) -> None:
    assert main(["repro", LINEAR]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f'"""{LINEAR}\n\nnumerics: ')
    compile(out, "script.py", "exec")


@pytest.mark.skipif(guard.unavailable() is not None, reason=str(guard.unavailable()))
@pytest.mark.parametrize(("run_id", "shown"), [(PROJECTION, "memory"), (BROADCAST, "undefined")])
def test_the_script_of_a_run_that_leaves_its_memory_shows_it_by_the_guard(
    run_id: str, shown: str, tmp_path: Path, capsys: Capture
) -> None:
    """With torch alone, whether the check fails or the ledger calls the outcome undefined."""
    assert main(["repro", run_id]) == 0
    assert not guard.switched_on()
    script = tmp_path / "script.py"
    script.write_text(capsys.readouterr().out)
    done = subprocess.run([sys.executable, "-I", str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert f"DEVIATES {shown}: out of bounds: Access(access='reads', side='beyond', bytes=" in done.stdout


def test_an_instruction_set_limit_is_set_before_torch_loads() -> None:
    command = [sys.executable, "-m", "conformance", "repro", "--isa", "avx2", LINEAR]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    before, _, _ = done.stdout.partition("import torch\n")
    assert "os.environ.update({'ONEDNN_MAX_CPU_ISA': 'AVX2'" in before


def test_a_run_of_pairs_shows_the_entries_for_runs_with_its_features(capsys: pytest.CaptureFixture[str]) -> None:
    name = "qnnpack/F.adaptive_avg_pool1d/static-qint8/ptq/output_size_7+spread/pairs@qnnpack"
    assert main(["show", name]) == 0
    assert "not listed" not in capsys.readouterr().out

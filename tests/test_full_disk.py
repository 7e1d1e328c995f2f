"""A file that cannot be written is one line that names it, whichever command writes it, and what is there stays."""

import contextlib
import io
import resource
from pathlib import Path

import pytest
import timed
from invocation import CONFORMS, write

from conformance.__main__ import main
from conformance.host.isolation import Done, run_isolated

COMMANDS = {
    "report": ("report", "rows.jsonl", "-o", "OUT"),
    "merge": ("merge", "rows.jsonl", "-o", "OUT"),
    "store": ("store", "rows.jsonl", "--history", "OUT"),
    "init": ("init", "--backend-config", "conformance.configs.qnnpack:get_qnnpack_backend_config", "OUT"),
    "golden": ("golden", "update", "--case", "*/nn.ReLU/static-quint8/ptq/vector/exact@*", "--golden", "OUT"),
    "export": ("bench", "export", "timings.jsonl", "-o", "OUT"),
    "speed": ("bench", "speed", "timings.jsonl", "-o", "OUT"),
    "history": ("bench", "store", "timings.jsonl", "--history", "OUT"),
}


def full(arguments: tuple[str, ...]) -> tuple[int, str]:
    """The status of a command on a full disk, and what it prints to stderr."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as errors:
        status = main(arguments)
    return status, errors.getvalue()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_is_one_line_that_names_the_file(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if command in ("store", "history"):
        pytest.importorskip("duckdb", reason="`tox -e history` has it")
    monkeypatch.chdir(tmp_path)
    write(Path("rows.jsonl"), [CONFORMS])
    timed.write(Path("timings.jsonl"), timed.passes("nn.Linear", [0.5, 0.6]))
    before = {path for path in Path().rglob("*") if path.is_file()}
    (outcome,) = run_isolated([COMMANDS[command]], full)
    assert isinstance(outcome, Done), outcome
    status, errors = outcome.value
    assert (status, errors.count("\n")) == (2, 1), errors
    assert errors.startswith("conformance: error: ")
    assert "too large" in errors.lower()
    assert "OUT" in errors or command == "store"  # which writes what it adds to a temporary folder first
    assert {path for path in Path().rglob("*") if path.is_file() and path.stat().st_size} == before


def test_output_that_cannot_be_written_is_one_line() -> None:
    def printed(_: object) -> tuple[int, str]:
        errors = io.StringIO()
        with open("/dev/full", "w") as full, contextlib.redirect_stdout(full), contextlib.redirect_stderr(errors):
            status = main(["claims", "--backend", "qnnpack"])
        return status, errors.getvalue()

    assert run_isolated([None], printed) == [Done((2, "conformance: error: the output: No space left on device\n"))]

"""The command `predict`: what it prints and writes, its exit status, and errors for what it cannot predict."""

import json
from pathlib import Path

import pytest

from conformance.__main__ import main
from conformance.results.predictions import from_json

SHAPE = ("--shape", "2,3,12,12")


def test_it_prints_a_prediction_for_each_engine_and_writes_them_as_json(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "predictions.json"
    options = ("--engine", "x86", "--engine", "qnnpack", "--json", str(file))
    assert main(["predict", "audited_networks:relu6", *SHAPE, *options]) == 1
    out = capfd.readouterr().out
    assert max(map(len, out.splitlines())) <= 100
    assert [line for line in out.splitlines() if line.startswith(("✓", "✗"))] == [
        line for line in out.splitlines() if "audited_networks:relu6 on " in line
    ]
    assert "✗ wrong numbers, silently: qnnpack-clamp-channels-last, 1 layer" in out
    predictions = [from_json(values) for values in json.loads(file.read_text())]
    assert [(one.engine, one.holds) for one in predictions] == [("x86", True), ("qnnpack", False)]


def test_the_exit_status_is_0_if_nothing_is_foretold_whatever_the_data(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "audited_networks:residual", *SHAPE]) == 0
    out = capfd.readouterr().out
    assert out.startswith("✓ audited_networks:residual on x86, ")
    assert "100% will do so in integers, 0% in float" in out


def test_conditions_are_said_unless_inputs_are_given(capfd: pytest.CaptureFixture[str]) -> None:
    main(["predict", "audited_networks:residual", *SHAPE])
    assert "if the scale of its output is >=1e36: add-overflows" in " ".join(capfd.readouterr().out.split())
    main(["predict", "audited_networks:residual", "--inputs", "audited_networks:images"])
    assert "add-overflows" not in capfd.readouterr().out


def test_another_platform_is_named_in_the_first_line(capfd: pytest.CaptureFixture[str]) -> None:
    main(["predict", "audited_networks:residual", *SHAPE, "--platform", "x86_64", "--isa", "avx2"])
    assert "residual on x86, x86_64 avx2, torch " in capfd.readouterr().out.splitlines()[0]


def test_layers_in_float_have_the_reason(capfd: pytest.CaptureFixture[str]) -> None:
    main(["predict", "audited_networks:no_claims", *SHAPE])
    assert "in float, no claim covers" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("audited_networks:nothing", *SHAPE), "nothing"),
        (("audited_networks:residual",), "no inputs: give either --inputs module:callable or --shape"),
        (
            ("audited_networks:residual", *SHAPE, "--platform", "sparc"),
            "--platform 'sparc': the ledger knows aarch64, x86_64",
        ),
        (("audited_networks:residual", *SHAPE, "--engine", "tpu"), "tpu"),
    ],
)
def test_an_error_is_one_line(options: tuple[str, ...], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as status:
        raise SystemExit(main(["predict", *options]))
    assert status.value.code not in (0, 1)
    err = capfd.readouterr().err.strip()
    assert message in err
    assert len(err.splitlines()) == 1

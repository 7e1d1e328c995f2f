"""The table of engines: one row makes an engine known, and unknown names are explained."""

import sys
from pathlib import Path

import pytest

from conformance.configs.engines import ENGINE_TABLE, ENGINES, EngineSpec
from conformance.engines.native import NATIVE
from conformance.engines.registry import engine
from conformance.errors import UsageError

FAKE = """
from conformance.engines.native import NativeEngine

class FakeEngine(NativeEngine):
    def unavailable(self):
        return "it is a fake"

FAKE = FakeEngine("fake")
"""


@pytest.mark.parametrize("name", ENGINE_TABLE)
def test_every_row_names_an_engine_of_its_name(name: str) -> None:
    assert engine(name).name == name
    assert engine(name) is engine(name)


def test_native_engines_are_those_of_torch() -> None:
    assert NATIVE.keys() == {name for name, spec in ENGINE_TABLE.items() if spec.native}
    assert NATIVE.keys() == {"qnnpack", "fbgemm", "onednn", "x86"}


def test_engines_of_a_backend_come_from_the_table() -> None:
    assert ENGINES == {
        "qnnpack": ("qnnpack",),
        "fbgemm": ("fbgemm", "x86"),
        "onednn": ("onednn",),
        "executorch": ("executorch",),
    }


def test_a_module_and_a_row_add_an_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fake_engine.py").write_text(FAKE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(ENGINE_TABLE, "fake", EngineSpec("fake_engine:FAKE"))
    try:
        assert engine("fake").unavailable() == "it is a fake"
    finally:
        sys.modules.pop("fake_engine", None)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("onedn", f"unknown engine 'onedn': did you mean onednn? Choose from {', '.join(ENGINE_TABLE)}"),
        ("zzz", f"unknown engine 'zzz': choose from {', '.join(ENGINE_TABLE)}"),
    ],
)
def test_an_unknown_engine_is_refused_with_the_nearest_name(name: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        engine(name)
    assert str(raised.value) == message

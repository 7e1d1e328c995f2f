"""Causes of deviations of layers in the ledger."""

from pathlib import Path

import pytest

from conformance.errors import UsageError
from conformance.results.known import Host
from conformance.results.ledger import explaining, useless
from conformance.results.ledger_file import load

HOST = Host("2.13.0", "x86_64", "avx512_vnni")
ENTRY = """
[[finding]]
id = "clamp"
title = "Clamp mixes up elements"
reason = "It clamps in memory order."
shows = [{ layers = [
    { engine = ["qnnpack"], check = "numerics", operator = ["nn.ReLU6", "F.*"], formats = "channels_last*", ratio = ">=256"},
] }]
"""
FEATURES = {"operator": "nn.ReLU6", "formats": "channels_last contiguous", "ratio": "300"}


def ledger(folder: Path, text: str = ENTRY) -> Path:
    (folder / "known.toml").write_text(text)
    return folder


def test_a_layer_is_explained_by_engine_check_and_features(tmp_path: Path) -> None:
    entries = load(ledger(tmp_path))
    found = explaining(entries, HOST, "qnnpack", "numerics", FEATURES)
    assert found is not None
    assert found.id == "clamp"


@pytest.mark.parametrize(
    ("engine", "check", "changed"),
    [
        ("x86", "numerics", {}),
        ("qnnpack", "stable", {}),
        ("qnnpack", "numerics", {"operator": "nn.ReLU"}),
        ("qnnpack", "numerics", {"formats": "contiguous"}),
        ("qnnpack", "numerics", {"ratio": "255.9"}),
        ("qnnpack", "numerics", {"ratio": "unknown"}),
    ],
)
def test_another_layer_is_not(tmp_path: Path, engine: str, check: str, changed: dict[str, str]) -> None:
    assert explaining(load(ledger(tmp_path)), HOST, engine, check, {**FEATURES, **changed}) is None


def test_a_layer_without_a_feature_is_not_explained_by_it(tmp_path: Path) -> None:
    features = {name: value for name, value in FEATURES.items() if name != "ratio"}
    assert explaining(load(ledger(tmp_path)), HOST, "qnnpack", "numerics", features) is None


def test_an_entry_holds_where_its_conditions_do(tmp_path: Path) -> None:
    text = ENTRY.replace("shows = [{", 'shows = [{ when = { arch = "aarch64" },')
    assert explaining(load(ledger(tmp_path, text)), HOST, "qnnpack", "numerics", FEATURES) is None


def test_an_entry_about_layers_alone_is_not_useless_for_runs(tmp_path: Path) -> None:
    assert useless(load(ledger(tmp_path)), ["fbgemm/nn.ReLU/static-quint8/ptq/default/exact@x86"], HOST) == {}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('engine = ["qnnpack"], ', "", "layer 1: engine is missing"),
        ('check = "numerics"', 'check = "numeric"', "layer 1: unknown check 'numeric'"),
        ('ratio = ">=256"', "ratio = 256", "layer 1: ratio is neither a string nor a list of strings"),
        (
            ENTRY[ENTRY.index("shows = ") :],
            'shows = [{ must = "numerics" }]',
            "where is missing: write conditions on runs, or layers",
        ),
        ("layers = [", "layers = [3, ", "layer 1: is a int: write { engine = ENGINE, check = CHECK, FEATURE = VALUE }"),
    ],
)
def test_a_wrong_entry_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        load(ledger(tmp_path, ENTRY.replace(old, new)))
    assert message in str(raised.value)


def test_the_cause_that_says_most_of_a_layer_explains_it(tmp_path: Path) -> None:
    general = ENTRY.replace('"clamp"', '"anything"').replace('operator = ["nn.ReLU6", "F.*"], ', "")
    for text in (general + ENTRY, ENTRY + general):
        found = explaining(load(ledger(tmp_path, text)), HOST, "qnnpack", "numerics", FEATURES)
        assert found is not None
        assert found.id == "clamp"


def test_a_condition_on_vnni_is_one_on_the_cpu_and_not_on_its_limits(tmp_path: Path) -> None:
    (entry,) = load(ledger(tmp_path, ENTRY.replace("shows = [{", 'shows = [{ when = { vnni = "True" },')))
    limited = Host("2.13.0", "x86_64", "avx2", ("avx2", "avx512_vnni"))
    assert entry.applies(HOST)
    assert entry.applies(limited)
    assert not entry.applies(Host("2.13.0", "x86_64", "avx2", ("avx2",)))

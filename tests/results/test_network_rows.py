"""Rows of audited networks, and what reports make of them."""

from dataclasses import replace
from pathlib import Path

import pytest
from audited import audit as fabricated_audit
from audited import clean, failed
from invocation import HEADER

from conformance.reports.diff import compare
from conformance.reports.load import Report
from conformance.reports.merge import merge
from conformance.results.audits import SCHEMA, Audit, Fault, Stability, from_json, to_json
from conformance.results.findings.layers import LayerDiffers, NetworkLoses, NetworkUnstable
from conformance.results.networks import Place, rows
from conformance.results.rows import Row, Writer, contradiction, read
from conformance.results.verdicts import Verdict


def written(path: Path, audits: list[Audit]) -> Path:
    writer = Writer(path, HEADER)
    for audit in audits:
        for row in rows(audit):
            writer.add(row)
    writer.finish({})
    return path


def test_a_network_has_a_row_and_one_for_each_layer_that_computes() -> None:
    audit = fabricated_audit()
    whole, *layers = rows(audit)
    assert whole.pattern == "network"
    blamed = {layer.name for layer in audit.blamed}
    named = [layer.name for layer in audit.layers if layer.arithmetic.computes or layer.name in blamed]
    assert [Place.of(row).layer for row in layers] == named
    assert {Place.of(row).network for row in layers} == {audit.network.replace(":", ".")}
    assert len({row.id for row in layers}) == len(layers)


def test_rows_do_not_contradict_themselves() -> None:
    for audit in (fabricated_audit(), clean(), failed()):
        assert [wrong for row in rows(audit) if (wrong := contradiction(row))] == []


def test_the_verdict_of_a_layer_is_that_of_its_faults() -> None:
    verdicts = {Place.of(row).layer: row for row in rows(fabricated_audit())}
    assert verdicts["features.13.block.3.0"].verdict is Verdict.CRASHES
    assert verdicts["features.5.block.1.0"].failed == {"numerics"}
    assert verdicts["features.5.block.1.0"].known is None
    assert verdicts["features.9.block.0.0"].known == "onednn-saturation"


def whole(audit: Audit) -> Row:
    return next(rows(audit))


def test_what_a_network_loses_is_explained_by_its_layers() -> None:
    known = replace(clean(), engine_db=10.0, reference_db=20.0)
    assert [type(one) for one in whole(known).findings] == [NetworkLoses]
    assert whole(known).known is None
    explained = replace(
        known, layers=tuple(one for one in fabricated_audit().layers if one not in fabricated_audit().new)
    )
    assert whole(explained).known is not None


def test_a_loss_that_other_roundings_of_ties_cause_too_is_no_finding() -> None:
    audit = replace(clean(), engine_db=10.0, reference_db=20.0, tied_db=11.0)
    assert not audit.loses
    assert whole(audit).verdict is Verdict.CONFORMS


def test_an_unstable_network_deviates() -> None:
    audit = replace(clean(), stability=(Stability("batch split", "fail", "it changes 3 of 9 values"),))
    assert [type(one) for one in whole(audit).findings] == [NetworkUnstable]
    assert whole(audit).failed == {"stable"}


def test_a_network_whose_next_run_has_other_values_is_not_usable() -> None:
    assert clean().usable
    for name, usable in (("batch split", True), ("repeatable", False)):
        assert replace(clean(), stability=(Stability(name, "fail", "changes 3 of 9 values"),)).usable == usable


def test_audits_survive_json() -> None:
    for audit in (fabricated_audit(), clean(), failed()):
        assert from_json(to_json(audit)) == audit
    with pytest.raises(TypeError, match=f"schema 99; this version reads {SCHEMA}"):
        from_json({**to_json(clean()), "schema": 99})


def test_reports_merge_and_diff_take_rows_of_networks(tmp_path: Path) -> None:
    before = written(tmp_path / "before.jsonl", [clean()])
    layer = next(one for one in clean().layers if one.arithmetic.computes)
    faults = (Fault(LayerDiffers("numerics", 3, 9, 2)),)
    worse = replace(clean(), layers=tuple(
        replace(one, faults=faults) if one.name == layer.name else one
        for one in clean().layers
    ))  # fmt: skip
    after = written(tmp_path / "after.jsonl", [worse])
    difference = compare(before, after)
    assert difference.worse
    merge([before], tmp_path / "merged.jsonl", incomplete=False)
    assert len(read(tmp_path / "merged.jsonl").rows) == len(read(before).rows)
    report = Report([after])
    assert [Place.of(result.row).layer for result in report.new] == [layer.name]

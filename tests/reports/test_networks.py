"""The tables of audited networks."""

from dataclasses import replace

from audited import KNOWN, audit, clean, failed

from conformance.reports.networks import document


def test_a_cell_has_the_figures_and_the_layer_that_does_most_damage() -> None:
    shown = "\n".join(
        document([replace(audit(), network="one"), replace(clean(), network="one", engine="onednn")], KNOWN)
    )
    assert "| network | layers | x86 | onednn |" in shown
    worst = audit().blamed[0]
    assert f"{len(audit().blamed)}: `{worst.name}`" in shown


def test_networks_of_both_flows_are_shown_beside_each_other() -> None:
    one = replace(clean(), network="one", engine="onednn", engine_db=31.0, time_ratio=0.456, size_ratio=None)
    other = replace(failed(), network="one", engine="executorch", stage="prepare", cause="shared-layer-norms")
    shown = "\n".join(document([one, other], KNOWN))
    share = "100%" if one.integer_share == 1 else f"{one.integer_share:.0%}"
    assert (
        f"| one | 31.0 dB, {share} in integers; 0.46 of the time, – of the size | fails in prepare (shared-layer-norms) |"
        in shown
    )
    assert "FX beside PT2E" not in "\n".join(document([one], KNOWN))


def test_causes_are_counted_by_network() -> None:
    shown = [*document([replace(audit(), network="one"), replace(audit(), network="two")], KNOWN)]
    (line,) = [line for line in shown if line.startswith("| onednn-saturation")]
    assert line.split("|")[3].strip() == "2"
    assert KNOWN["onednn-saturation"] in line


def test_operators_in_float_are_listed() -> None:
    shown = "\n".join(document([audit()], KNOWN))
    assert "## Operators that stay in float" in shown
    assert "no pattern of the config matches nn.LayerNorm" in shown


def test_a_network_that_fails_has_its_reason() -> None:
    shown = "\n".join(document([failed()], KNOWN))
    assert "fails: " in shown

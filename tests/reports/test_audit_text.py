"""An audit as text: within 100 columns, what is to blame first, and harmless whatever names the network has."""

import re
from dataclasses import replace

import pytest
from audited import HOSTILE, KNOWN, NOT_SUPPORTED, UPSTREAM, audit, clean, conv, failed, fault_of, hostile

from conformance.reports.audit_text import summary_line, text
from conformance.reports.audit_words import percent
from conformance.reports.columns import path, shortened, width, wrapped
from conformance.results.audits import Agreement, Arithmetic, Audit, Layer

WIDE = Audit(
    "package." * 40 + "名前" * 30, "engine" * 9, "backend" * 30,
    layers=tuple(
        conv(
            f"transformertransformer.encoder.layers.{number}.attention.self.投影{'名' * number}",
            number % 60, "nn.Conv2d+nn.ReLU" * 4,
            kernels=("quantized.conv2d_relu",) * 5, agreement=Agreement(10, 1, 2, 3, 4), reason="long reason " * 20,
            arithmetic=[*Arithmetic][number % 5], faults=(fault_of("numerics", "x" * 300),) * (number % 7 == 0),
        )
        for number in range(120)
    ),
    engine_db=-123.4, reference_db=103.4,
)  # fmt: skip


def blame(shown: str) -> str:
    return shown[shown.index("To blame") : shown.index("\nLayers\n")]


def row(shown: str, layer: str) -> str:
    """The row of a layer in the table."""
    table = shown[shown.index("\nLayers\n") :]
    return next(line for line in table.splitlines() if line[2:].startswith(f"{layer} "))


@pytest.mark.parametrize("shown", [audit(), clean(), failed(), hostile(), WIDE])
def test_no_line_is_wider_than_100_columns(shown: Audit) -> None:
    known = {**KNOWN, HOSTILE: HOSTILE}
    assert len(audit().layers) > 100
    for line in [*text(shown, known, UPSTREAM).splitlines(), summary_line(shown)]:
        assert width(line) <= 100, line
        assert line == line.rstrip()


def test_the_figures_of_the_network_are_first() -> None:
    shown = text(audit(), KNOWN)
    figures = " ".join(shown[: shown.index("To blame")].split())
    for sentence in (
        "torchvision.models:mobilenet_v3_large on x86, config fbgemm, audited in 21 s",
        "✗ cannot be converted as it is: nn.GELU raises in convert; the rest has 22.9 dB against float; "
        "7 layers to blame (2 new), 1 operator refused, 1 of 3 repetitions differ",
        "reference's output 31.4 dB against float",
        "22.9 dB against float: the engine loses another 8.5 dB, over the limit of 3 dB; 24.0 dB against the reference",
        "99: 74 in integers (75%), 18 in name only (18%), 7 in float (7.1%)",
        "14 layers to quantize or dequantize",
        "threads DIFFERS (3 outputs differ)",
        "batch skipped (batch of 1)",
    ):
        assert sentence in figures


def test_blamed_layers_are_in_order_of_damage() -> None:
    shown = blame(text(audit(), KNOWN))
    places = [re.search(rf" {re.escape(layer.name)}(,| \()", shown).start() for layer in audit().blamed]  # type: ignore[union-attr]
    assert len(places) == 7
    assert places == sorted(places)


def test_new_and_known_faults_are_told_apart() -> None:
    shown = text(audit(), KNOWN, UPSTREAM)
    assert "numerics, NEW: execute raises RuntimeError: 6,200 of 200,704 codes differ" in blame(shown)
    assert "numerics, known as onednn-saturation: execute raises RuntimeError: an accumulation saturates" in blame(
        shown
    )
    assert row(shown, "features.5.block.1.0").startswith("✗")
    assert row(shown, "features.9.block.0.0").startswith("~")
    assert row(shown, "features.13.block.3.0").startswith("✗"), "one of its two faults is new"
    assert row(shown, "classifier.gelu").startswith("!")


def test_the_reason_of_an_entry_is_said_once() -> None:
    shown = text(audit(), KNOWN, UPSTREAM)
    assert " ".join(shown.split()).count(KNOWN["x86-hardswish-in-float"]) == 1
    assert "saturates. (pytorch/pytorch#103646)" in " ".join(shown.split())
    assert "known as onednn-saturation" in text(audit()), "an entry without a reason is named"


def test_refusals_and_reductions_are_shown() -> None:
    shown = " ".join(text(audit(), KNOWN).split())
    assert (
        "nn.GELU (1 layer) raises in convert, NEW: RuntimeError: no qengine has it left in float: classifier.gelu"
        in shown
    )
    assert "shows alone: One convolution with the same weight and input differs. Reproduction of 4 lines" in shown
    assert "takes features.8.block.add_8 beside it" in shown
    assert "not reduced: Without its network it does not end the process." in shown


def test_a_reduction_of_another_layer_is_shown() -> None:
    other = replace(audit(), reductions=(replace(audit().reductions[0], layer="features.0.0"),))
    assert "\nReduced\n\n      features.0.0\n        shows alone" in text(other)


def test_a_row_has_the_figures_of_its_layer() -> None:
    shown = text(audit(), KNOWN)
    assert row(shown, "features.5.block.1.0").split() == (
        [
            "✗",
            "features.5.block.1.0",
            "Conv2d+BN+ReLU",
            "conv2d_relu",
            "int",
            "0.6%",
            "3.1%",
            "20.9",
            "51.5",
            "0.0383/0",
            "0.8%",
        ]
    )
    assert "output quint8 0.0473/0, reference quint8 0.05/3; uses 11 of 256 codes; 4.2% of the elements" in shown
    assert row(shown, "features.0.0").split()[-4:] == ["=", "58.0", "0.0123/0", "0.8%"]


def test_every_layer_that_computes_has_a_row_and_conversions_thin_lines() -> None:
    shown = text(audit(), KNOWN)
    columns = next(line.index(" operator ") for line in shown.splitlines() if line.startswith("  layer ")) - 2
    for layer in audit().layers:
        if layer.arithmetic.computes:
            assert row(shown, path(layer.name, columns))
    assert shown.count("\n  · ") == 15
    assert "  · quantize_per_tensor quint8 0.0186/114 " in shown


def test_a_blamed_conversion_has_a_row() -> None:
    layers = [
        replace(layer, faults=(fault_of("numerics", "off by one"),)) if layer.name == "dequantize_1" else layer
        for layer in audit().layers
    ]
    assert row(text(replace(audit(), layers=tuple(layers))), "dequantize_1").startswith("✗")


def test_layers_in_float_are_grouped_by_reason() -> None:
    shown = text(audit(), KNOWN)
    groups = " ".join(shown[shown.index("In float, and why") :].split())
    assert f"{NOT_SUPPORTED} 6 × nn.LayerNorm" in groups
    assert "18 × nn.Hardswish in integers in name only" in groups
    assert "float 2" in row(shown, "features.6.block.2.norm")
    assert f"    └ float 2: {NOT_SUPPORTED}" in shown


def test_a_network_that_cannot_be_traced_is_explained() -> None:
    shown = text(failed())
    assert '    File "/home/me/models.py", line 31, in forward\n      if x.sum() > 0:\n' in shown
    assert "Move the branch out of forward" in shown
    assert "Layers" not in shown
    assert "float" not in shown


def test_what_is_known_of_a_crash_is_shown_after_it() -> None:
    shown = text(replace(audit(), failure="ends by signal 11", cause="onednn-saturation", engine_db=None), KNOWN)
    assert "✗ ends by signal 11; 7 layers to blame (2 new)" in shown
    assert "\n  known as onednn-saturation\n    Without VNNI" in shown
    assert "To blame" in shown


def test_an_engine_without_faults_and_a_network_without_layers() -> None:
    assert text(clean()).splitlines()[1] == "✓ usable: 31.2 dB against float; nothing to blame"
    assert "To blame" not in text(clean())
    empty = text(Audit("m:f", "x86", "fbgemm"))
    assert "The lowered network has no layers." in empty
    assert "equal to float" in empty


def test_a_network_under_the_floor_is_never_said_to_be_right() -> None:
    wide = replace(clean().layers[1], name="sub_1", float_db=-2.0, clipped=1.0)
    destroyed = replace(clean(), engine_db=1.1, reference_db=1.1, layers=(*clean().layers, wide))
    assert not destroyed.holds
    first = " ".join(text(destroyed).splitlines()[1:3])
    assert first.startswith(
        "✗ not usable: 1.1 dB against float, under 10; sub_1 leaves -2.0 dB and clips 100% of its values"
    )
    assert "on onednn: ✗ not usable; nothing to blame; 84% integer; 1.1 of 1.1 dB" in summary_line(destroyed)
    assert replace(destroyed, floor_db=1.0).holds
    spread = replace(clean(), engine_db=1.1, reference_db=1.1)
    said = " ".join(text(spread).split())
    assert "under 10; nothing to blame: the reference has 1.1 dB against float" in said
    clipping = replace(spread.layers[0], name="quant", clipped=0.3)
    said = " ".join(text(replace(spread, layers=(clipping, *spread.layers))).split())
    assert "the reference has 1.1 dB against float, quant clips 30% of its values" in said


def test_hostile_text_is_inert() -> None:
    shown = text(hostile(), {HOSTILE: HOSTILE}, {HOSTILE: HOSTILE}) + summary_line(hostile())
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert not [line for line in shown.splitlines() if line.lstrip().startswith("::")]


def test_a_summary_fits_one_line() -> None:
    assert summary_line(audit()).endswith(
        "_v3_large on x86: ✗ 7 blamed, 2 new, 1 refused, 1 unstable; 75% integer; 22.9 of 31.4 dB"
    )
    assert summary_line(clean()) == (
        "torchvision.models:mobilenet_v3_large on onednn: ✓ nothing to blame; 84% integer; 31.2 of 31.4 dB"
    )
    assert "on qnnpack: ✗ not audited: torch.fx cannot trace it" in summary_line(failed())
    known = [layer for layer in audit().layers if layer not in audit().new]
    without = replace(audit(), layers=tuple(known), refusals=(), stability=())
    assert "on x86: ~ cannot run; 5 blamed; " in summary_line(without)
    assert (
        text(without).splitlines()[1].startswith("~ cannot run: in features.4.block.1.2, execute raises RuntimeError: ")
    )


@pytest.mark.parametrize(
    ("name", "columns", "shown"),
    [
        ("bert.encoder.layer.11.attention.self.query", 50, "bert.encoder.layer.11.attention.self.query"),
        ("bert.encoder.layer.11.attention.self.query", 30, "bert.e.l.11.a.self.query"),
        ("bert.encoder.layer.11.attention.self.query", 18, "b.e.l.11.a.s.query"),
        ("bert.encoder.layer.11.attention.self.query", 12, "b.e….s.query"),
        ("conv", 2, "…v"),
        ("名前.名前", 8, "名.名前"),
        ("名前名前", 5, "…名前"),
    ],
)
def test_paths_are_shortened_in_their_middle(name: str, columns: int, shown: str) -> None:
    assert path(name, columns) == shown
    assert width(path(name, columns)) <= columns


def test_columns_count_wide_and_combining_characters() -> None:
    assert width("名前e\u0301") == 5
    assert shortened("abcdefghij", 7) == "ab…ghij"
    assert [*wrapped("a bb 名前名前 ccc", 5)] == ["a bb", "名前", "名前", "ccc"]


@pytest.mark.parametrize(
    ("share", "shown"),
    [(0, "0%"), (1, "100%"), (0.00004, "<.01%"), (0.0012, "0.12%"), (0.0123, "1.2%"), (0.123, "12%"), (0.9999, ">99%")],
)
def test_shares_are_short_and_never_rounded_to_none_or_all(share: float, shown: str) -> None:
    assert percent(share) == shown


def test_the_shares_of_arithmetic_count_layers_that_compute() -> None:
    view = Layer("flatten", "torch.flatten", None, Arithmetic.VIEW)
    assert "layers that compute       none" in text(Audit("m:f", "x86", "fbgemm", (view,)))


def test_a_quantizer_is_called_so_and_its_delegates_are_counted() -> None:
    through_pt2e = replace(clean(), engine="executorch", backend="xnnpack", delegates=3)
    lines = text(through_pt2e).splitlines()
    assert "on executorch, quantizer xnnpack" in lines[0]
    assert "  delegates                 3" in lines

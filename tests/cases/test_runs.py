"""Every claim has runs with public ids, in a stable order."""

import re
import subprocess
import sys

import pytest
from torch import nn
from torch.ao.quantization.backend_config import BackendConfig, BackendPatternConfig

from conformance.cases.claims import BackendClaims, backend, claims_of
from conformance.cases.operators import OPERATORS
from conformance.cases.runs import KERNEL_ONLY, Run, runs, select
from conformance.configs import dtypes
from conformance.configs.engines import ENGINE_TABLE, EngineSpec
from conformance.configs.registry import BACKENDS
from conformance.engines.registry import engine
from conformance.errors import UsageError
from conformance.models.build import float_outputs, subject
from conformance.results.profiles import PROFILES, profile_names

ID = re.compile(
    r"(?P<backend>\w+)/(?P<pattern>[\w.,+*()]+)/(?P<dtypes>(static|dynamic|weight)-\w+(-\d+)?)"
    r"/(?P<flow>ptq|qat)/(?P<variant>[\w.+-]+)/(?P<profile>exact|typical|in_use|initialized|trained|pairs|contexts|constraints|laws|codes)"
    r"@(?P<engine>\w+)"
)


def every_run(name: str) -> list[Run]:
    return list(runs(backend(name)))


def of_claim(claim: str) -> list[Run]:
    """The cases of a claim."""
    runs = every_run(claim.partition("/")[0])
    return [run for run in runs if run.claim.id == claim and run.profile in profile_names("case")]


def flows_of(claim: str) -> list[str]:
    return list(dict.fromkeys(run.flow for run in of_claim(claim)))


@pytest.mark.parametrize("name", BACKENDS)
def test_ids_are_written_as_the_design_says(name: str) -> None:
    for run in every_run(name):
        parts = ID.fullmatch(run.id)
        assert parts is not None, run.id
        assert run.variant is not None
        assert parts.groupdict() == {
            "backend": name,
            "pattern": run.claim.pattern,
            "dtypes": run.claim.dtype_config,
            "flow": run.flow,
            "variant": run.variant.name,
            "profile": run.profile,
            "engine": run.engine,
        }


@pytest.mark.parametrize(
    "name",
    [
        "fbgemm/nn.Conv2d+nn.ReLU/static-quint8/ptq/groups/exact@x86",
        "onednn/operator.add(nn.BatchNorm2d(nn.Conv2d),*)/static-quint8/ptq/default/exact@onednn",
        "fbgemm/nn.Linear/static-quint8/ptq/default/exact@fbgemm",
        "qnnpack/nn.Linear/static-qint8/qat/default/exact@qnnpack",
    ],
)
def test_ids_are_public_and_stay(name: str) -> None:
    assert name in {run.id for run in every_run(name.partition("/")[0])}


def test_the_ids_of_all_runs_are_unique() -> None:
    ids = [run.id for name in BACKENDS for run in every_run(name)]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("name", BACKENDS)
def test_every_claim_has_a_run_on_every_engine_of_its_backend(name: str) -> None:
    pairs = {(run.claim.id, run.engine) for run in every_run(name)}
    assert pairs == {(claim.id, engine) for claim in backend(name).claims for engine in BACKENDS[name].engines}


def test_the_order_is_the_same_in_every_process() -> None:
    code = (
        "from conformance.cases.runs import runs; from conformance.cases.claims import backend\n"
        "print('\\n'.join(run.id for run in runs(backend('onednn'))))"
    )
    environment = {"PYTHONHASHSEED": "7"}
    printed = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert printed.stdout.split() == [run.id for run in every_run("onednn")]


def test_runs_of_one_case_are_adjacent_so_that_engines_share_its_model() -> None:
    ids = [run.id for run in every_run("fbgemm")]
    assert all(
        on_fbgemm.replace("@fbgemm", "@x86") == on_x86 for on_fbgemm, on_x86 in zip(ids[::2], ids[1::2], strict=True)
    )


def test_other_engines_can_be_selected() -> None:
    selected = list(runs(backend("fbgemm"), ["onednn"]))
    assert {run.engine for run in selected} == {"onednn"}
    assert [run.id.partition("@")[0] for run in selected] == [
        run.id.partition("@")[0] for run in every_run("fbgemm") if run.engine == "x86"
    ]


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        ("fbgemm/nn.Linear/static-quint8", ["ptq", "qat"]),
        ("fbgemm/nn.Linear+nn.ReLU/static-quint8", ["ptq", "qat"]),
        ("fbgemm/nn.Conv2d+nn.BatchNorm2d/static-quint8", ["ptq", "qat"]),
        ("fbgemm/F.linear/static-quint8", ["ptq"]),
        ("fbgemm/operator.add/static-quint8", ["ptq"]),
        ("fbgemm/nn.LSTM/dynamic-quint8", ["ptq"]),
        ("fbgemm/nnqat.Linear/static-quint8", ["qat"]),
        ("fbgemm/nniqat.ConvReLU2d/static-quint8", ["qat"]),
    ],
)
def test_a_claim_has_a_qat_flow_if_its_entry_has_a_qat_module(claim: str, expected: list[str]) -> None:
    assert flows_of(claim) == expected


def variants_of(claim: str, flow: str) -> set[str]:
    runs = [run for run in of_claim(claim) if run.flow == flow and run.profile not in ("pairs", "contexts")]
    return {run.variant.name for run in runs if run.variant is not None}


def test_the_qat_flow_has_the_core_variants_of_a_layer_and_all_variants_of_a_qat_module() -> None:
    core = {v.name for v in OPERATORS["nn.Linear"] if v.core}
    assert variants_of("fbgemm/nn.Linear/static-quint8", "qat") == core - set(KERNEL_ONLY)
    assert variants_of("fbgemm/nn.Linear/static-quint8", "ptq") >= {v.name for v in OPERATORS["nn.Linear"]}
    trained = variants_of("fbgemm/nnqat.Embedding/weight-quint4x2", "qat")
    assert "odd_width" in trained
    assert trained == {v.name for v in OPERATORS["nnqat.Embedding"]}


def test_only_claims_with_quantized_weights_have_per_channel_variants() -> None:
    assert "per_channel" in variants_of("fbgemm/nn.Linear/static-quint8", "ptq")
    assert "per_channel" not in variants_of("fbgemm/nn.Linear/dynamic-float16", "ptq")


def test_only_claims_with_static_activations_have_variants_of_their_observers() -> None:
    observed = {"saturates", "symmetric"}
    assert observed <= variants_of("fbgemm/nn.Linear/static-quint8", "ptq")
    assert observed <= variants_of("fbgemm/nn.Linear+nn.ReLU/static-quint8", "ptq")
    assert "symmetric" in variants_of("fbgemm/torch.add+F.relu/static-quint8", "ptq")
    for claim in ("fbgemm/nn.Linear/dynamic-quint8", "fbgemm/nn.Linear/dynamic-float16"):
        assert not observed & variants_of(claim, "ptq")


def of_variant(claim: str, name: str) -> Run:
    return next(run for run in of_claim(claim) if run.variant is not None and run.variant.name == name)


@pytest.mark.parametrize("claim", ["qnnpack/nn.Linear/static-quint8", "qnnpack/nn.Conv2d/static-qint8"])
def test_a_saturating_variant_exceeds_the_observed_range_of_its_output_but_not_that_of_its_input(claim: str) -> None:
    saturating = subject(of_variant(claim, "saturates"))
    (seen,), (executed,) = saturating.calibration, saturating.inputs
    assert (seen.min(), seen.max()) == (executed.min(), executed.max())
    (before,), (after,) = float_outputs(saturating, saturating.calibration), float_outputs(saturating)
    assert float(after.min()) < 2 * float(before.min()) < 0 < 2 * float(before.max()) < float(after.max())


def test_channels_have_different_scales_if_weights_are_quantized_per_channel() -> None:
    for name, factors in (("per_channel", [1, 2, 4, 1, 2, 4, 1, 2]), ("default", [1] * 8)):
        linear = subject(of_variant("fbgemm/nn.Linear/static-quint8", name))
        greatest = linear.model.op.weight.abs().amax(1)  # type: ignore[union-attr, operator]
        assert [float(greatest[0] / magnitude) for magnitude in greatest] == factors


def test_a_second_operand_may_have_a_zero_point_of_its_own() -> None:
    addition = subject(of_variant("qnnpack/torch.add/static-quint8", "other_zero_point"))
    x, y = addition.inputs
    assert x.min() < 0 <= y.min()


@pytest.mark.parametrize("claim", ["nn.MaxPool1d", "nn.MaxPool2d", "F.max_pool1d", "F.max_pool2d"])
def test_padded_maxima_are_tested_on_negative_data(claim: str) -> None:
    run = of_variant(f"qnnpack/{claim}/static-quint8", "padded_negative")
    assert "padding=1" in run.model.source
    assert float(subject(run).inputs[0].max()) <= 0


def test_a_claim_without_variants_has_a_run_that_is_not_covered() -> None:
    entry = BackendPatternConfig(nn.Unfold).set_dtype_configs([dtypes.STATIC_QUINT8_WEIGHTED])
    config = BackendConfig("mine").set_backend_pattern_config(entry)
    (run,) = runs(BackendClaims("mine", config, ("x86",), claims_of("mine", config), ""))
    assert (run.id, run.variant) == ("mine/nn.Unfold/static-quint8/ptq/not-covered/exact@x86", None)


@pytest.mark.parametrize("name", BACKENDS)
def test_every_claim_has_a_typical_run_in_every_flow(name: str) -> None:
    all_runs = every_run(name)
    flows = {(run.claim.id, run.flow, run.engine) for run in all_runs}
    typical = [run for run in all_runs if run.profile == "typical" and run.variant and not run.variant.saturates]
    assert sorted((run.claim.id, run.flow, run.engine) for run in typical) == sorted(flows)


@pytest.mark.parametrize("name", ["fbgemm", "onednn", "qnnpack"])
def test_layers_are_executed_beyond_what_calibration_saw(name: str) -> None:
    beyond = [run for run in every_run(name) if "/beyond/typical@" in run.id]
    layers = {
        *(
            f"{kind}{rank}d"
            for rank in (1, 2, 3)
            for kind in ("nn.Conv", "nn.ConvTranspose", "F.conv", "F.conv_transpose")
        )
    }
    assert {run.claim.pattern for run in beyond} == {*layers, "nn.Linear", "F.linear"}
    assert {run.claim.dtype_config.partition("-")[0] for run in beyond} == {"static"}
    assert {run.engine for run in beyond} == {*backend(name).engines}


def test_an_execution_beyond_what_calibration_saw_has_inputs_1_5_and_2_times_as_large() -> None:
    linear = "fbgemm/nn.Linear/static-quint8/ptq"
    beyond, default = (
        subject(next(run for run in every_run("fbgemm") if run.id == f"{linear}/{variant}/typical@fbgemm"))
        for variant in ("beyond", "default")
    )
    (seen,), (executed,) = beyond.calibration, beyond.inputs
    assert executed.shape == seen.shape
    assert set((executed / seen).flatten().tolist()) == {1.5, 2.0}
    assert [x.shape for x in default.inputs] == [executed.shape]
    assert not any(run.engine == "executorch" for run in every_run("executorch") if "/beyond/" in run.id)


def test_every_source_of_a_layer_is_compiled_by_torchscript_once() -> None:
    compiled = [run for name in ("fbgemm", "qnnpack") for run in every_run(name) if run.variant and run.scripted]
    assert {(run.profile, run.claim.dtype_config) for run in compiled if run.claim.pattern == "nn.ReLU"} == {
        ("exact", "static-quint8"),  # fbgemm
        ("exact", "static-qint8"),  # qnnpack, which declares both
    }
    plain = {config: [run for run in compiled if run.claim.pattern == "nn.ReLU" and run.backend.name == config]
             for config in ("fbgemm", "qnnpack")}  # fmt: skip
    assert {(run.engine, run.variant.name) for run in plain["fbgemm"] if run.variant} == {("fbgemm", "default")}
    assert {run.variant.name for run in plain["qnnpack"] if run.variant} > {"default", "inplace"}
    weighted = [run for run in compiled if run.claim.id == "fbgemm/nn.Linear/static-quint8"]
    assert {run.variant.name for run in weighted if run.variant and run.engine == "x86"} == {"default"}
    assert {run.variant.name for run in weighted if run.variant and run.engine == "fbgemm"} > {"default", "no_bias"}
    for claim, all_options in (
        ("fbgemm/nn.Conv2d/static-quint8", True),
        ("fbgemm/nn.Conv2d+nn.ReLU/static-quint8", False),
    ):
        sources = {run.model.source for run in every_run("fbgemm") if run.claim.id == claim and run.profile == "exact"}
        found = {run.model.source for run in compiled if run.claim.id == claim}
        assert (found == sources) is all_options
        assert found <= sources


def test_data_are_the_same_on_every_engine_and_backend() -> None:
    keys = {
        run.key
        for name in ("fbgemm", "onednn", "qnnpack")
        for run in every_run(name)
        if run.id.partition("/")[2].partition("@")[0] == "nn.ReLU/static-quint8/ptq/default/exact"
    }
    assert keys == {"nn.ReLU/static-quint8/ptq/default/exact"}


def test_different_cases_have_different_data() -> None:
    cases = [run for run in every_run("onednn") if run.constraint is None]
    assert len({run.key for run in cases}) == len(cases)


def test_the_constraints_of_a_claim_and_flow_have_the_same_data() -> None:
    tested = [run for run in every_run("onednn") if run.constraint is not None]
    assert len({run.key for run in tested}) == len({(run.claim.id, run.flow) for run in tested}) < len(tested)


def test_globs_select_runs_in_their_order() -> None:
    all_runs = every_run("fbgemm")
    globs = ["*/nn.ReLU/*@x86", "fbgemm/nn.Linear/static-*/default/*"]
    picked = select(all_runs, globs)
    assert [run.id for run in picked] == [
        run.id
        for run in all_runs
        if (run.claim.pattern == "nn.ReLU" and run.engine == "x86")
        or (run.claim.pattern == "nn.Linear" and run.claim.dtype_config.startswith("static") and "/default/" in run.id)
    ]
    assert picked


def test_without_globs_all_runs_of_an_engine_that_lowers_just_in_time_are_selected() -> None:
    all_runs = every_run("fbgemm")
    assert select(iter(all_runs), []) == all_runs


def test_without_globs_the_core_runs_of_an_engine_that_lowers_ahead_of_time_are_selected() -> None:
    all_runs = every_run("executorch")
    picked = select(iter(all_runs), [])
    omitted = [run for run in all_runs if run not in picked]
    assert omitted
    rest = [run for run in omitted if PROFILES[run.profile].unasked != "never"]
    assert not [run.id for run in rest if run.profile != "exact" or run.variant is None or run.variant.core]
    covered = {(run.claim, run.flow, run.profile) for run in picked}
    asked = [run for run in all_runs if PROFILES[run.profile].unasked != "never"]
    assert covered == {(run.claim, run.flow, run.profile) for run in asked}
    assert select(iter(all_runs), ["executorch/*"]) == all_runs


def test_without_globs_no_sweeps_of_an_engine_that_lowers_in_each_turn_are_selected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(ENGINE_TABLE, "own", EngineSpec("own:Engine"))
    every = [*runs(backend("fbgemm"), ["own"])]
    swept = {run.id for run in every if run.profile == "codes"}
    assert swept
    assert {run.id for run in every} - {run.id for run in select(every, [])} == swept


def test_a_glob_that_matches_no_run_is_refused_even_beside_one_that_matches() -> None:
    with pytest.raises(UsageError) as raised:
        select(every_run("fbgemm"), ["fbgemm/nn.ReLU/*", "fbgemm/nn.Relu/*"])
    assert str(raised.value).startswith("no run matches 'fbgemm/nn.Relu/*'")
    assert "\n" not in str(raised.value)


def test_an_unknown_engine_is_refused_with_one_line_that_names_the_known_ones() -> None:
    with pytest.raises(UsageError) as raised:
        engine("tensorrt")
    assert str(raised.value) == f"unknown engine 'tensorrt': choose from {', '.join(ENGINE_TABLE)}"


def test_every_constraint_of_a_dtype_config_has_a_run_in_every_flow() -> None:
    ids = [run.id for run in every_run("qnnpack") if run.profile == "constraints"]
    linear = [name for name in ids if name.startswith("qnnpack/nn.Linear/")]
    assert linear == [
        f"qnnpack/nn.Linear/static-qint8/{flow}/{field}/constraints@qnnpack"
        for flow in ("ptq", "qat")
        for field in (
            "input.scale_min_lower_bound",
            "output.scale_min_lower_bound",
            "weight.quant_min_lower_bound",
            "weight.quant_max_upper_bound",
            "weight.scale_min_lower_bound",
        )
    ]
    assert not any("static-quint8" in name and "nn.Conv" in name for name in ids)


@pytest.mark.parametrize("name", BACKENDS)
def test_every_claim_and_engine_has_one_run_of_the_laws(name: str) -> None:
    laws = [(run.claim.id, run.engine) for run in every_run(name) if run.profile == "laws"]
    assert laws == [(claim.id, engine) for claim in backend(name).claims for engine in BACKENDS[name].engines]

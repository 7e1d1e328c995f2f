"""What kernels may branch on: the conditions of runs, waves of runs that meet them, and what failing runs share."""

from conformance.cases.claims import backend
from conformance.cases.conditions import conditions, inputs, kernel, most_telling, shared
from conformance.cases.runs import Run, runs

RUNS = [run for run in runs(backend("fbgemm")) if run.claim.pattern == "nn.Conv2d" and run.profile != "constraints"]


def named(variant: str, profile: str = "exact", engine: str = "fbgemm") -> Run:
    return next(
        run for run in RUNS if run.variant and (run.variant.name, run.profile, run.engine) == (variant, profile, engine)
    )


def test_conditions_are_options_formats_sizes_and_data() -> None:
    default = conditions(named("default"))
    assert {"batch % 8 is 2", "channels % 8 is 4", "width % 8 is 7", "output channels % 8 is 0", "data zero"} <= default
    assert {one for one in default if "=" in one} == {"kernel_size=3", "padding=1"}
    assert {"stride=2", "stride"} <= conditions(named("stride"))
    assert "channels-last input" in conditions(named("channels_last"))


def test_inputs_are_told_with_their_shapes_formats_and_zero_points() -> None:
    assert inputs(named("default")) == "x 2x4x8x7 of scale 2**-4, 64 codes below zero"
    assert inputs(named("channels_last")) == "x 2x4x8x7 channels_last of scale 2**-4, 64 codes below zero"
    assert inputs(named("batch5")).startswith("x 5x4x8x7 ")
    assert "scale" not in inputs(named("default", "typical"))


def test_engines_and_dtypes_have_kernels_of_their_own_and_batch_norms_have_none() -> None:
    claims = {claim.pattern: claim for claim in backend("fbgemm").claims if claim.dtype_config == "static-quint8"}
    alone, normed, activated = (
        next(kernel(run) for run in runs(backend("fbgemm"), ["fbgemm"]) if run.claim is claims[name])
        for name in ("nn.Conv2d", "nn.Conv2d+nn.BatchNorm2d", "nn.Conv2d+nn.ReLU")
    )
    assert alone == normed != activated
    assert kernel(named("default")) != kernel(named("default", engine="x86"))


def test_the_most_telling_runs_meet_every_condition_of_every_kernel_early() -> None:
    ordered = [*most_telling(RUNS, {run.id: 1.0 for run in RUNS})]
    assert sorted(run.id for run in ordered) == sorted(run.id for run in RUNS)
    every = {(kernel(run), one) for run in RUNS for one in conditions(run)}
    first = {(kernel(run), one) for run in ordered[: len(RUNS) // 5] for one in conditions(run)}
    assert len(first) > 0.9 * len(every)
    in_turn = {(kernel(run), one) for run in RUNS[: len(RUNS) // 5] for one in conditions(run)}
    assert len(in_turn) < 0.8 * len(every)


def test_of_equally_telling_runs_the_cheaper_one_comes_first() -> None:
    costs = {run.id: 1.0 for run in RUNS}
    dear, *_ = most_telling(RUNS, costs)
    assert next(most_telling(RUNS, {**costs, dear.id: 100.0})) is not dear


def test_what_failing_runs_share_sets_them_apart() -> None:
    cases = [run for run in RUNS if run.engine == "fbgemm" and run.profile in ("exact", "pairs")]
    failing = [run for run in cases if "stride=2" in conditions(run)]
    passing = [run for run in cases if run not in failing]
    common, also = shared(failing, passing)
    assert "stride=2" in common
    assert also == 0


def test_nothing_sets_apart_what_all_have() -> None:
    assert shared(RUNS[:4], RUNS[:4]) == ([], 4)


def test_what_the_tables_do_not_know_has_the_name_of_its_variant() -> None:
    unknown = next(run for run in runs(backend("tosa")) if run.claim.root == "torch.einsum" and run.variant)
    assert unknown.variant is not None
    assert unknown.variant.name.replace("_", " ") in conditions(unknown)

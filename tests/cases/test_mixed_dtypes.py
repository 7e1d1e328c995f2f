"""A config may promise a quantized output of a float input: its claims have rows that say what is not quantized."""

import torch
from torch import nn
from torch.ao.quantization.backend_config import BackendConfig, BackendPatternConfig, DTypeConfig

from conformance.cases.claims import BackendClaims, claims_of
from conformance.cases.runs import runs
from conformance.checks.judge import Judge
from conformance.results.verdicts import Verdict

FLOAT_TO_QUINT8 = DTypeConfig(input_dtype=torch.float, output_dtype=torch.quint8)
CONFIG = BackendConfig("mixed").set_backend_pattern_configs(
    [BackendPatternConfig(nn.Hardswish).add_dtype_config(FLOAT_TO_QUINT8)]
)
CLAIMS = BackendClaims("mixed", CONFIG, ("x86",), claims_of("mixed", CONFIG), "")


def test_inputs_without_codes_have_no_sweeps() -> None:
    profiles = {run.profile for run in runs(CLAIMS)}
    assert "exact" in profiles
    assert "codes" not in profiles


def test_a_run_of_which_nothing_is_quantized_deviates_and_needs_no_golden() -> None:
    run = next(run for run in runs(CLAIMS) if run.profile == "exact")
    row, unusable = Judge().row(run)
    assert (row.verdict, unusable) == (Verdict.DEVIATES, "")
    assert {"observed", "reference"} <= row.failed
    assert row.checks["numerics"] == "skip"

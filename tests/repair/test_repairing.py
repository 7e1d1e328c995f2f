"""Repairs: each remedy is proved by an audit, what does not help is left out, and what is written needs torch alone."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from audited_networks import images, relu6, residual
from torch import Tensor, nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.fx.custom_config import PrepareCustomConfig

from conformance.__main__ import main
from conformance.audit.auditing import claims_for
from conformance.audit.network import Network, network
from conformance.engines.registry import engine as engine_named
from conformance.errors import UsageError
from conformance.models import fx
from conformance.models.correspondence import Matches
from conformance.repair.repairing import FALLBACK, Names, Repair, Repairing, helps
from conformance.repair.rewrites import InFloat, leave_in_float, make_contiguous, rewritten
from conformance.results.audits import Audit, Refusal
from conformance.results.ledger_file import load
from tests.audit.causes import CAUSES, Cause
from tests.prediction.test_predicting import HOST, OF_FX, Branch, Twice

ENTRIES = load()

UNREPAIRED = {
    "boolean-observed": "what is refused is a part of the network, and not a layer",
    "inplace-alias": "a layer that is left in float writes to a copy too",
    "tuple-observed": "what is refused is a part of the network, and not a layer",
    "weight-read-after-lowering": "the layer to blame is not the one whose weight is read",
}
"""Findings that no remedy avoids in their least model, and why."""

LEAST = [*{(cause.id, cause.mapping is None): cause for cause in OF_FX if cause.mapping is None}.values()]
"""A least model for each finding with the default mapping."""


def repaired(cause: Cause) -> Repair:
    torch.manual_seed(0)
    subject = network(cause.id, nn.Sequential(cause.model()).eval(), cause.batches())
    return Repairing(cause.engine, ENTRIES, HOST).repair(subject)


def causes(audited: Audit) -> set[str | None]:
    found = {fault.cause for layer in audited.blamed for fault in layer.faults}
    found |= {refusal.cause for refusal in audited.refusals}
    return found | ({audited.cause} if audited.failure else set())


@pytest.mark.parametrize("cause", LEAST, ids=[cause.name for cause in LEAST])
def test_a_minimal_model_is_repaired(cause: Cause) -> None:
    if cause.engine not in torch.backends.quantized.supported_engines:
        pytest.skip(f"torch has no {cause.engine} here")
    repair = repaired(cause)
    assert not repair.before.failure or cause.id in UNREPAIRED
    assert (cause.id not in causes(repair.after)) == (cause.id not in UNREPAIRED), repair.steps


REMEDIES = {entry.id: entry.finding.remedies for entry in ENTRIES if entry.finding.remedies}


@pytest.mark.parametrize("name", REMEDIES)
def test_a_remedy_of_the_ledger_avoids_its_finding_and_leaves_the_layer_in_integers(name: str) -> None:
    cause = next(one for one in CAUSES if one.id == name and not one.quantizer)
    if cause.engine not in torch.backends.quantized.supported_engines:
        pytest.skip(f"torch has no {cause.engine} here")
    torch.manual_seed(0)
    # slopes of PReLU are split where a layer before it tells the dimensions
    model = nn.Sequential(nn.Conv2d(4, 4, 1), nn.PReLU(4)) if name.startswith("prelu") else cause.model()
    inputs = [(torch.randn(2, 4, 6, 6),) for _ in range(3)] if name.startswith("prelu") else cause.batches()
    subject = network(name, nn.Sequential(model).eval(), inputs)
    repair = Repairing(cause.engine, ENTRIES, HOST).repair(subject, fallback=False)
    assert {step.kind for step in repair.steps if step.cause == name} <= {*REMEDIES[name]} - {"float"}
    assert name in causes(repair.before)
    assert name not in causes(repair.after)


def test_a_network_without_blame_is_left_as_it_is() -> None:
    repair = Repairing("x86", ENTRIES, HOST).repair(network("residual", residual(), images()))
    assert (repair.steps, repair.after) == ((), repair.before)


class Unneeded(nn.Module):
    """Calls a layer twice whose values have one range, so that nothing is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.relu6, self.conv = nn.ReLU6(), nn.Conv2d(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.relu6(self.conv(x))
        return y


def test_what_is_new_falls_back_to_float() -> None:
    torch.manual_seed(0)
    subject = network("new", Unneeded().eval(), [(torch.randn(2, 4, 6, 6) * 8,) for _ in range(3)])
    repair = Repairing("qnnpack", (), HOST).repair(subject)
    assert [(step.kind, step.cause) for step in repair.steps] == [(*FALLBACK, "")]
    assert not repair.after.blamed
    assert repair.after.integer_share < repair.before.integer_share


def test_a_network_that_cannot_be_traced_cannot_be_repaired() -> None:
    subject = network("branch", Branch().eval(), [(torch.rand(2, 4),)] * 2)
    with pytest.raises(
        UsageError, match="branch cannot be repaired, because FX cannot trace it: TraceError: symbolically"
    ):
        Repairing("x86", ENTRIES, HOST).repair(subject)


class Asserts(nn.Module):
    """Reads a property for a message alone, and a parameter twice."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.relu6 = nn.Parameter(torch.ones(4, 4, 1, 1)), nn.ReLU6()

    def forward(self, x: Tensor) -> Tensor:
        torch._assert(x.shape[1] == 4, f"4 channels (got {x.shape})")  # type: ignore[no-untyped-call]
        y = torch.nn.functional.conv2d(x, self.weight) + torch.nn.functional.conv2d(x, self.weight)
        z: Tensor = self.relu6(y)
        return z


def test_nodes_have_the_names_of_the_traced_network_however_often_they_are_traced() -> None:
    graph = rewritten(Asserts().eval(), [(leave_in_float, "add")])
    names = Names.of(graph)
    found = [names.of_layer(name) for name in ("conv2d", "conv2d_1", "add_own", "relu6", "nothing")]
    assert found == [("conv2d",), ("conv2d_1",), ("add",), ("relu6",), ()]


def test_a_module_that_is_called_twice_has_a_node_for_each_call() -> None:
    names = Names.of(rewritten(Twice().eval(), []))
    assert names.of_layer("linear") == ("linear", "linear_1")
    assert names.of_layer("linear (linear_1)") == ("linear_1",)


def test_a_step_helps_if_the_output_is_better_or_less_is_to_blame() -> None:
    def audit(db: float | None, failure: str = "") -> Audit:
        return Audit("n", "x86", "fbgemm", engine_db=db, failure=failure, stage="execute" if failure else "")

    assert helps(audit(10.0), audit(10.2))
    assert helps(audit(10.0), audit(None))
    assert helps(audit(10.0, "raises"), audit(1.0))
    assert not helps(audit(10.0), audit(10.05))
    assert not helps(audit(10.0), audit(9.8))
    assert not helps(audit(10.0), audit(20.0, "raises"))


def test_a_network_of_which_layers_are_refused_is_better_than_one_that_cannot_be_converted() -> None:
    refused = Audit("n", "x86", "fbgemm", refusals=(Refusal("nn.Conv2d", "prepare", "TypeError", "no", ("0",)),))
    assert not helps(refused, Audit("n", "x86", "fbgemm", failure="convert raises", stage="convert"))
    assert helps(refused, Audit("n", "x86", "fbgemm", engine_db=3.0))


SCRIPT = """
import sys
import torch
torch.set_num_threads(1)
sys.path.insert(0, sys.argv[1])
from repaired import quantize
model, batches = torch.load(sys.argv[2], weights_only=False)
quantized = quantize(model, batches[:-1])
assert not any(name.startswith("conformance") for name in sys.modules)
torch.save(quantized(*batches[-1]), sys.argv[3])
"""


def test_the_written_module_gives_the_audited_output_with_torch_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "repaired.py"
    options = ["--inputs", "audited_networks:images", "--engine", "qnnpack", "--repair", str(written)]
    assert main(["audit", "audited_networks:relu6", *options]) == 0
    out = capfd.readouterr().out
    assert "dB against float" in out
    assert "qnnpack-clamp-channels-last, 1 layer: give the layer its operands in contiguous memory format" in out
    assert max(map(len, out.splitlines())) <= max(100, len(str(written)) + 60)
    model, batches = relu6(), [tuple(batch) for batch in network("n", relu6(), images()).batches]
    torch.save((nn.Sequential(*model), batches), tmp_path / "model.pt")
    done = subprocess.run(
        [
            sys.executable,
            "-I",
            "-W",
            "ignore",
            "-c",
            SCRIPT,
            str(tmp_path),
            str(tmp_path / "model.pt"),
            str(tmp_path / "out.pt"),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert torch.equal(torch.load(tmp_path / "out.pt"), audited_output(model, batches))


def audited_output(model: nn.Module, batches: list[tuple[Tensor, ...]]) -> Tensor:
    """What the suite's own lowering of the rewritten network returns."""
    subject, custom = Network("n", model, tuple(batches)), PrepareCustomConfig()
    custom.set_non_traceable_module_classes([InFloat])
    config = claims_for("qnnpack").config
    with engine_named("qnnpack").scope(), fx.quiet(), torch.no_grad():
        graph = rewritten(model, [(make_contiguous, "_1")])
        mapping = get_default_qconfig_mapping("qnnpack")
        prepared = fx.prepare_network(graph, mapping, subject.held_out, config, Matches(), custom)
        for batch in subject.calibration:
            prepared(*batch)
        _, lowered, _ = fx.lower_network(prepared, config)
        output: Tensor = lowered(*subject.held_out)
    return output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--repair", "no-module.py"], "--repair 'no-module.py': name a file of Python that can be imported"),
        (
            ["--repair", "r.py", "--engine", "x86", "--engine", "qnnpack"],
            "--repair is for one engine: choose from x86, qnnpack",
        ),
        (["--repair", "r.py", "--quantizer", "xnnpack"], "leave out --quantizer"),
        (["--repair", "r.py", "--json", "f"], "leave out --json"),
    ],
)
def test_an_option_that_a_repair_does_not_take_is_an_error(
    options: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", "audited_networks:relu6", "--shape", "2,3,12,12", *options]) == 2
    assert message in capfd.readouterr().err

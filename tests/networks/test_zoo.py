"""The corpus of networks: names, weights, data, and errors. Only networks of this suite are built here."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from conformance.commands.networks import selected
from conformance.errors import UsageError
from conformance.networks import operators
from conformance.networks.network import BATCH, BATCHES, OWN, Input, Network
from conformance.networks.zoo import NETWORKS, TRAINED, network, sorted_by_task

OF_THIS_SUITE = [row for row in NETWORKS.values() if row.package == OWN]
REQUIREMENTS = Path(__file__).parents[2] / "conformance" / "networks" / "requirements.txt"


def own(source: str, **options: object) -> Network:
    """A network of this module."""
    return Network("tiny", "classification", OWN, f"{__name__}:{source}", options, (Input((3, 8, 8), smooth=True),))


def normalized() -> nn.Module:
    """A batch norm whose factors an initializer left at zero, as at the end of a residual branch."""
    norm = nn.BatchNorm2d(4, momentum=0.3)
    nn.init.zeros_(norm.weight)
    return nn.Sequential(nn.Conv2d(3, 4, 3), norm, nn.Dropout())


def outputs(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    with torch.no_grad():
        output = model(*inputs)
    return [output] if isinstance(output, torch.Tensor) else list(output)


def test_the_corpus_is_large_and_broad() -> None:
    tasks = {row.task for row in NETWORKS.values()}
    assert len(NETWORKS) >= 66
    assert {
        "classification",
        "detection",
        "generation",
        "recommendation",
        "segmentation",
        "speech",
        "text",
        "video",
    } <= tasks


def test_names_are_sorted_by_task() -> None:
    order = [(row.task, row.name) for row in NETWORKS.values()]
    assert order == sorted(order)
    assert all(name == row.name for name, row in NETWORKS.items())


def test_two_networks_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match=r"two networks are named tiny"):
        sorted_by_task([own("normalized"), own("normalized")])


@pytest.mark.parametrize("row", OF_THIS_SUITE, ids=lambda row: row.name)
def test_a_network_is_built_with_the_same_weights_every_time(row: Network) -> None:
    state = torch.get_rng_state()
    first, second = row.build(), row.build()
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(module.training for module in first.modules())
    *_, held_out = row.batches()
    for a, b in zip(outputs(first, held_out), outputs(second, held_out), strict=True):
        assert torch.equal(a, b)
        assert len(a) == BATCH
        assert bool(torch.isfinite(a).all())


@pytest.mark.parametrize("row", OF_THIS_SUITE, ids=lambda row: row.name)
def test_a_network_treats_the_items_of_a_batch_alike(row: Network) -> None:
    model = row.build()
    *_, held_out = row.batches()
    alone = outputs(model, tuple(x[1:].clone() for x in held_out))
    for whole, part in zip(outputs(model, held_out), alone, strict=True):
        torch.testing.assert_close(part, whole[1:], rtol=1e-3, atol=1e-4)  # one item may take another kernel


@pytest.mark.parametrize("row", [*NETWORKS.values(), *TRAINED.values()], ids=lambda row: row.name)
def test_batches_have_the_declared_shapes_and_the_same_values_every_time(row: Network) -> None:
    batches = row.batches()
    assert len(batches) == len(BATCHES)
    for batch, again in zip(batches, row.batches(), strict=True):
        assert [tuple(x.shape) for x in batch] == [(BATCH, *declared.shape) for declared in row.inputs]
        assert all(torch.equal(a, b) for a, b in zip(batch, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(batches[0], batches[2], strict=True))


def test_indices_are_in_their_range() -> None:
    indices = Input((50,), high=3).batch("indices")
    assert indices.dtype == torch.int64
    assert sorted(set(indices.flatten().tolist())) == [0, 1, 2, 3]


def test_neighbours_in_a_smooth_input_are_similar() -> None:
    smooth, noise = (Input((3, 64, 64), smooth=smooth).batch("picture") for smooth in (True, False))
    assert smooth.var().item() == pytest.approx(1, abs=0.3)
    assert (smooth[..., 1:] - smooth[..., :-1]).var() < 0.6 * (noise[..., 1:] - noise[..., :-1]).var()


def test_an_input_with_peaks_has_few_values_that_are_far_greater() -> None:
    values = Input((1000,), peaks=50).batch("spectrum")
    assert 10 < (values > 20).sum() < 80
    assert values.median().abs() < 0.5


def test_trained_weights_and_statistics_stay_as_they_are() -> None:
    row = replace(own("normalized"), trained=True)
    norm = row.build().get_submodule("1")
    assert isinstance(norm, nn.BatchNorm2d)
    assert norm.running_mean is not None
    assert not norm.weight.any()
    assert not norm.running_mean.any()
    assert not norm.training


def test_networks_with_trained_weights_are_asked_for_by_name() -> None:
    assert selected([]) == [*NETWORKS]
    assert selected(["*_trained"]) == [*TRAINED]
    assert not {*NETWORKS} & {*TRAINED}


def test_batch_norms_are_settled_and_constant_parameters_are_filled() -> None:
    model = own("normalized").build()
    norm = model.get_submodule("1")
    assert isinstance(norm, nn.BatchNorm2d)
    assert norm.running_mean is not None
    assert bool((norm.running_mean != 0).all())
    assert bool((norm.weight != 0).all())
    assert norm.momentum == 0.3
    assert norm.num_batches_tracked == 3


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"^unknown network 'wavnet': did you mean wavenet\b"):
        network("wavnet")


def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    row = Network("elsewhere", "classification", "not_installed", "not_installed.models:net", {}, ())
    with pytest.raises(UsageError) as caught:
        row.build()
    assert str(caught.value) == (
        "network elsewhere needs the package not_installed, and not_installed is not installed: "
        "`tox -e networks` installs them"
    )


def test_every_package_of_the_corpus_has_a_pinned_requirement() -> None:
    lines = [
        line for line in REQUIREMENTS.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")
    ]
    assert all(line.count("==") == 1 for line in lines)
    pinned = {line.split("==")[0] for line in lines}
    assert {row.package for row in (*NETWORKS.values(), *TRAINED.values())} - {OWN} <= pinned


@pytest.mark.skipif(importlib.util.find_spec("torchvision") is not None, reason="it may have its own operators")
def test_operators_of_torchvision_are_defined_once() -> None:
    operators.define_torchvision_operators()
    first = torch.ops.torchvision.nms
    operators.define_torchvision_operators()
    assert torch.ops.torchvision.nms is first
    assert "float iou_threshold" in str(torch.ops.torchvision.qnms.default._schema)

"""Data of layers in use: parameters before and after training, and activations as in networks."""

import math

import pytest
import torch
from torch import Tensor, nn

from conformance.cases.claims import backend
from conformance.cases.runs import Run, runs
from conformance.models.build import range_in_use, subject
from conformance.models.data import (
    AMPLIFYING,
    activations,
    bell,
    fill_initialized,
    fill_trained,
    own_tensors,
    spreads,
    uniform,
)


def values(model: nn.Module) -> dict[str, Tensor]:
    return {name.removeprefix("."): tensor.detach() for _, name, _, tensor in own_tensors(model)}


def test_bell_shaped_numbers_are_the_same_bits_everywhere() -> None:
    assert (bell("key", (4,)) / bell("key", (4,), 2.0)).tolist() == [0.5] * 4
    numbers = bell("nn.Linear/x", (100_000,))
    assert abs(float(numbers.mean())) < 0.01
    assert abs(float(numbers.std()) - 1) < 0.01
    assert 3 < float(numbers.abs().max()) <= 2 * math.sqrt(3)


def test_uniform_numbers_reach_their_bound() -> None:
    numbers = uniform("key", (10_000,), 0.25)
    assert 0.249 < float(numbers.abs().max()) <= 0.25


@pytest.mark.parametrize(
    ("layer", "bound"),
    [
        (nn.Conv2d(32, 16, 3, groups=4), (8 * 9) ** -0.5),
        (nn.ConvTranspose2d(16, 32, 3), (32 * 9) ** -0.5),
        (nn.Linear(50, 20), 50**-0.5),
        (nn.LSTM(12, 20), 20**-0.5),
    ],
    ids=["convolution", "transposed", "linear", "recurrent"],
)
def test_initialized_layers_are_as_uniform_as_those_of_torch(layer: nn.Module, bound: float) -> None:
    torch.manual_seed(0)
    layer.to_empty(device="cpu")
    for module in layer.modules():
        module.reset_parameters()  # type: ignore[operator]
    torchs = {name: float(tensor.abs().max()) for name, tensor in values(layer).items()}
    fill_initialized(layer, "key")
    for name, tensor in values(layer).items():
        assert torchs[name] <= bound * 1.0001, name
        assert 0.7 * bound < float(tensor.abs().max()) <= bound, name


@pytest.mark.parametrize("module", [nn.BatchNorm2d(8), nn.LayerNorm(8), nn.GroupNorm(2, 8), nn.PReLU(8)], ids=str)
def test_initialized_norms_and_slopes_are_those_of_torch(module: nn.Module) -> None:
    torchs = {name: tensor.clone() for name, tensor in values(module).items()}
    fill_trained(module, "key")
    fill_initialized(module, "key")
    assert all(torch.equal(tensor, torchs[name]) for name, tensor in values(module).items())


def test_initialized_embeddings_are_normal() -> None:
    embedding = nn.Embedding(500, 20)
    fill_initialized(embedding, "key")
    assert abs(float(embedding.weight.detach().std()) - 1) < 0.02


def test_trained_rows_have_unequal_magnitudes_and_heavy_tails() -> None:
    layer = nn.Conv2d(64, 64, 3)
    fill_trained(layer, "key")
    rows = layer.weight.detach().flatten(1)
    magnitudes = rows.std(1) * math.sqrt(rows.shape[1])
    assert torch.allclose(magnitudes, spreads("key", 64).float(), rtol=0.3)
    alive = magnitudes > 0.01
    assert 0 < int((~alive).sum()) < 16
    assert float(magnitudes[alive].max() / magnitudes[alive].min()) > 8
    normalized = rows[alive] / rows[alive].std(1, keepdim=True)
    assert float(normalized.pow(4).mean()) > 6  # 3 for a normal distribution


def test_a_trained_batch_norm_has_the_variances_of_its_layers_results() -> None:
    model = nn.Sequential(nn.Conv2d(64, 64, 1, bias=False), nn.BatchNorm2d(64))
    fill_trained(model, "key")
    variance, spread = values(model)["1.running_var"], spreads("key", 64)
    assert float(variance.max() / variance.min()) > 1e4
    assert float((variance.sqrt() / spread).log2().abs().max()) < 2


def test_a_layer_with_few_channels_has_no_dead_ones() -> None:
    assert float(spreads("key", 7).min()) >= 2.0**-3


@pytest.mark.parametrize("tails", [False, True])
@pytest.mark.parametrize("low", [0, -100])
def test_activations_lie_between_the_ties_of_their_grid(low: int, tails: bool) -> None:
    positions = activations("key", (2, 32, 20, 20), low, 255 + low, 0.037, tails=tails, clipped=True).double() / 0.037
    assert float((positions - positions.round()).abs().max()) < 0.4376  # 7/16, an odd sixteenth
    assert (round(float(positions.min())), round(float(positions.max()))) == (low, 255 + low)


def test_half_of_the_activations_after_a_relu_are_zero() -> None:
    rectified = activations("key", (2, 32, 20, 20), 0, 255, 0.1, tails=True, clipped=True)
    assert 0.45 < float((rectified == 0).double().mean()) < 0.55
    signed = activations("key", (2, 32, 20, 20), -100, 155, 0.1, tails=True, clipped=True)
    assert not bool((signed == 0).any())


def test_activations_that_are_not_clipped_leave_the_observed_range() -> None:
    free = activations("key", (2, 32, 20, 20), 0, 255, 0.1, tails=True, clipped=False)
    clipped = activations("key", (2, 32, 20, 20), 0, 255, 0.1, tails=True, clipped=True)
    assert float(free.max()) > float(clipped.max())
    assert torch.equal(free.clamp(max=255 * 0.1), clipped)


def test_channels_of_activations_have_unequal_ranges() -> None:
    channels = activations("key", (2, 64, 20, 20), -100, 155, 0.1, tails=True, clipped=True).transpose(0, 1).flatten(1)
    assert float(channels.std(1).max() / channels.std(1).min()) > 4


def layers(name: str) -> list[Run]:
    return [run for run in runs(backend(name)) if run.profile in ("initialized", "trained")]


def test_the_observed_scale_is_the_step_of_the_data() -> None:
    static = [run for run in layers("onednn") if run.recipe.kind == "static" and "nn.Linear" in run.id]
    for run in static[:4]:
        observer = subject(run).qconfig.activation()
        (calibration,) = subject(run).calibration
        observer(calibration)
        scale, zero_point = observer.calculate_qparams()
        low, _, step = range_in_use(run, "x", run.model.operands[0][1])
        assert float(scale) == pytest.approx(step, rel=2.0**-22)
        assert int(zero_point) == -low


def test_operands_have_one_step_where_the_output_has_their_qparams() -> None:
    def steps(pattern: str) -> set[float]:
        run = next(run for run in layers("fbgemm") if run.claim.pattern == pattern and len(run.model.operands) == 2)
        return {range_in_use(run, name, spec)[2] for name, spec in run.model.operands}

    assert len(steps("torch.cat")) == 1
    assert len(steps("operator.mul")) == 2


def test_dynamic_layers_stay_in_the_range_that_their_kernel_observes() -> None:
    run = next(run for run in layers("fbgemm") if run.recipe.kind == "dynamic")
    assert torch.equal(subject(run).inputs[0], subject(run).calibration[0])


def test_the_slopes_of_a_trained_prelu_have_1_on_their_grid() -> None:
    layer = nn.PReLU(16)
    fill_trained(nn.Sequential(layer), "slopes")
    slopes = layer.weight.detach()
    assert float(slopes.min()) >= 0
    assert float(slopes.max()) == AMPLIFYING
    assert 255 / AMPLIFYING == 170

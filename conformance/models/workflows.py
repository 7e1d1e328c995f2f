"""Modules that are quantized in place: the float module of a run with its data, the quantized one, and what it stores."""

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from conformance.cases.claims import BackendClaims
from conformance.cases.operators import Variant
from conformance.cases.recipes import dtype_name
from conformance.cases.runs import Run
from conformance.cases.workflows import INDIVISIBLE, SHAPES, ZERO_ROW, channels
from conformance.configs.codes import Codes
from conformance.configs.workflows import Workflow, WorkflowConfig
from conformance.errors import brief
from conformance.oracle.workflows import (
    UNIT,
    Interval,
    Layer,
    codes,
    error_of_sums,
    in_blocks,
    inputs,
    outputs,
    qparams,
    rows,
    uncertain,
)
from conformance.results.profiles import PROFILES

from .build import Subject
from .data import integers, normal

STEP = 2.0**-6
"""The scale of dyadic weights, and of inputs that each call quantizes."""

ROUNDINGS = 3
"""How many roundings a scale of data that are not dyadic may have behind it, and the position of an element on the grid."""


def library(backend: BackendClaims) -> WorkflowConfig:
    """The config of a backend that quantizes modules in place."""
    assert isinstance(backend.config, WorkflowConfig)
    return backend.config


def unavailable(claims: BackendClaims, run: Run | None) -> str | None:
    """Why workflows cannot run here, or one of them, or None. What a size refuses, it refuses on every device."""
    if run is not None and workflow(run).needs and not (workflow(run).sized and variant_of(run).name == INDIVISIBLE):
        return f"needs {workflow(run).needs}"
    try:
        library(claims).namespace()
    except ImportError as error:
        environment = library(claims).environment
        return f"{brief(error)}: install it" + (f", or use `tox -e {environment}`" if environment else "")
    return None


def workflow(run: Run) -> Workflow:
    """The workflow of a run."""
    assert isinstance(run.claim.entry, Workflow)
    return run.claim.entry


def subject(run: Run) -> Subject:
    """The float module of a run in the dtype of its claim, with data: dyadic, or normally distributed."""
    scope: dict[str, Any] = {"torch": torch, "nn": nn, "F": F}
    exec(run.model.source, scope)
    entry, dtype, exact = workflow(run), run.claim.dtypes.input_dtype, is_exact(run)
    assert dtype is not None
    zero_row = variant_of(run).name == ZERO_ROW
    model = filled(scope["Model"](), run.key, entry.weight if exact else None, zero_row=zero_row, most=most(run))
    (spec,) = variant_of(run).operands.values()
    key = f"{run.key}/x"
    if spec.kind == "indices":
        x = indices(key, spec.shape, spec.limit)
    else:
        x = (taken(key, spec.shape, observed(run), most(run)) if exact else normal(key, spec.shape)).to(dtype)
    return Subject(run, None, None, model.to(dtype).eval(), (x,), (x,))


def is_exact(run: Run) -> bool:
    """Whether the data of a run are dyadic."""
    return PROFILES[run.profile].data == "dyadic" and not workflow(run).weight.shared


def is_exported(run: Run) -> bool:
    """Whether the module of a run is exported too: a default layer is, if its library promises that it can be."""
    return library(run.backend).exports and is_exact(run) and variant_of(run).name == "default"


def step(run: Run) -> float | None:
    """What all products of a run's dyadic data are multiples of; None for others."""
    return None if not is_exact(run) else STEP * (1 / 16 if observed(run) is None else STEP)


def rounding(run: Run) -> float:
    """By how much of itself a scale of a run's weight, or a position on its grid, may be off."""
    return 0.0 if is_exact(run) else rounding_on(workflow(run).weight, run.recipe.mapping, channels(variant_of(run)))


def rounding_on(grid: Codes, dtype: str, row: int) -> float:
    """By how much of itself a scale on a grid, or a position on it, may be off if it is computed in a dtype, of rows of so
    many elements that are not dyadic."""
    if grid.is_exact:
        return 0.0
    count = grid.blocks if isinstance(grid.blocks, int) else row
    sums = error_of_sums(count) if grid.mapping == "least_squares" else 0.0
    return ROUNDINGS * max(UNIT[grid.scale or dtype], UNIT.get(grid.stored, 0.0)) + sums


def unit(run: Run) -> float:
    """The unit roundoff of the arithmetic by which a run's inputs are quantized; 0 if nothing but codes is rounded."""
    return 0.0 if is_exact(run) else unit_of(workflow(run), run.recipe.mapping)


def unit_of(entry: Workflow, dtype: str) -> float:
    """The unit roundoff of the arithmetic by which a workflow quantizes inputs of a dtype; 0 if only codes are rounded."""
    return 0.0 if entry.activation is not None and entry.activation.is_exact else UNIT[dtype]


def observed(run: Run) -> Codes | None:
    """The grid of inputs whose scale each call takes from them, or None."""
    return None if workflow(run).fixed is not None else workflow(run).activation


def most(run: Run) -> int | None:
    """The greatest code of a run's dyadic data on symmetric grids, but for those that decide the scales. Sums of codes of -1,
    0 and 1 are exact in bfloat16 as well: a single step of one is seen, in a layer of the shapes for kernels."""
    return 1 if variant_of(run).name in SHAPES else None


def filled(model: nn.Module, key: str, grid: Codes | None, *, zero_row: bool, most: int | None = None) -> nn.Module:
    """A module of a layer, with dyadic parameters on a grid, or with normally distributed ones. The weight may have a row of
    zeros."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            label, shape = f"{key}/{name}", tuple(parameter.shape)
            if grid is None:
                parameter.copy_(normal(label, shape, math.prod(shape[1:]) ** -0.5))
            elif name.endswith("bias"):
                parameter.copy_(integers(label, parameter.numel(), -64, 64) / 8)
            else:
                parameter.copy_(channels_last(dyadic(label, channels_last(parameter).shape, grid, most), back=True))
            if zero_row and name.endswith("weight"):
                parameter[1] = 0.0
    return model


def taken(key: str, shape: tuple[int, ...], grid: Codes | None, most: int | None = None) -> Tensor:
    """Dyadic inputs (float32): on a grid whose scale each call takes from them, or multiples of 1/16."""
    if grid is not None:
        return dyadic(key, shape, grid, most)
    return (integers(key, torch.Size(shape).numel(), -64, 64) / 16).reshape(shape).float()


def indices(key: str, shape: tuple[int, ...], limit: int) -> Tensor:
    """Indices (int64) below a limit."""
    return integers(key, torch.Size(shape).numel(), 0, limit - 1).reshape(shape)


def channels_last(weight: Tensor, *, back: bool = False) -> Tensor:
    """A weight whose input channels, along which it has groups, are the last dimension; or one of these as it was."""
    if weight.dim() < 3:
        return weight
    return weight.movedim(-1, 1) if back else weight.movedim(1, -1)


def variant_of(run: Run) -> Variant:
    assert run.variant is not None
    return run.variant


def dyadic(key: str, shape: tuple[int, ...], grid: Codes, most: int | None = None) -> Tensor:
    """Float32 data on a grid whose scale is STEP: whole codes, and in each block one element or two that decide the scale.
    The rest of a symmetric grid may be `most` at most."""
    count = torch.Size(shape).numel()
    if grid.dtype:
        whole = integers(key, count, -7, 7).double()
        ends = grid.high
    else:
        low, high = int(grid.low), int(grid.high)
        if grid.mapping == "symmetric" and high:
            low, high = -min(high, most or high), min(high, most or high)
        whole = integers(key, count, low, high).double()
        ends = (grid.high - grid.low) / 2
    divides = not isinstance(grid.blocks, int) or (shape and shape[-1] % grid.blocks == 0)
    block = in_blocks(whole.reshape(shape), grid.blocks if divides else "row")
    blocks, length = block.shape
    if not count:
        return whole.reshape(shape).float()
    chosen = torch.arange(blocks), integers(f"{key}/where", blocks, 0, length - 1)
    if grid.mapping in ("asymmetric", "from_least"):
        lowest = int(grid.low)
        # a single element decides the scale if zero is the other end
        middle = integers(f"{key}/middle", blocks, lowest, int(grid.high) if length > 1 else lowest).unsqueeze(1)
        block = (block - middle).clamp(grid.low - middle, grid.high - middle)
        block[:, 0], block[:, -1] = (grid.low - middle).squeeze(1), (grid.high - middle).squeeze(1)
    elif grid.mapping in ("no_clipping", "least_squares"):
        block[chosen] = grid.low
    else:
        block[chosen] = ends * (1.0 - 2 * integers(f"{key}/sign", blocks, 0, 1).double())
    return (block.reshape(shape) * STEP).float()


def quantized(of: Subject) -> nn.Module:
    """A copy of the module of a subject that its workflow has quantized. Raises the exceptions of `quantize_`."""
    scope = library(of.run.backend).namespace()
    model = copy.deepcopy(of.model)
    scope["quantize_"](model, eval(workflow(of.run).source, scope), **asked_for(of.run))
    return model


def asked_for(run: Run) -> dict[str, Callable[[nn.Module, str], bool]]:
    """The arguments that make `quantize_` quantize modules other than linear layers."""
    pattern: Any = workflow(run).pattern
    return {} if pattern is nn.Linear else {"filter_fn": lambda module, name: isinstance(module, pattern)}


def in_float64(model: nn.Module) -> Layer:
    """The layer of a float module, without its bias, in float64."""
    exact = copy.deepcopy(model).double()
    other = {name: torch.zeros_like(value) for name, value in exact.named_parameters() if name.endswith("bias")}
    return lambda x, weight: functional_call(exact, other | {"op.weight": weight}, (x,))


def bias_of(layer: Any) -> Tensor | None:
    """The bias of a layer in float64, in the shape in which outputs take it, or None."""
    bias: Tensor | None = getattr(layer, "bias", None)
    return None if bias is None else bias.detach().double().reshape(-1, *[1] * (layer.weight.dim() - 2))


def interval(
    model: nn.Module, x: Tensor, entry: Workflow, stored: "Stored", unit: float, step: float | None
) -> Interval:
    """What the layer `op` of a float model may give for x with the values of stored codes. The arithmetic that quantizes x
    has a unit roundoff; `step` is what all products are multiples of, None if data are not dyadic."""
    floating = model.get_parameter("op.weight").detach()
    dtype = dtype_name(floating.dtype)
    weight, layer = stored.values(floating, entry.weight), in_float64(model)
    if not x.is_floating_point():
        return rows(layer, x, weight, dtype, exact=step is not None)
    taken = Interval(x.double(), x.double())
    if entry.activation is not None:
        taken = inputs(x, entry.activation, unit, entry.fixed)
    bias = bias_of(model.get_submodule("op"))
    return outputs(layer, taken, weight, bias, dtype, step=step, dequantizes=entry.rounds)


@dataclass(frozen=True)
class Stored:
    """What a quantized weight stores, all in float64: codes, of its shape, unless they are packed; scales and zero points,
    which have the dimensions of the weight, one element for each block."""

    codes: Tensor | None
    scale: Tensor
    zero_point: Tensor

    @classmethod
    def of(cls, weight: Tensor) -> "Stored | None":
        """What a weight stores; None if it is an ordinary tensor."""
        parts: Mapping[str, Any] = vars(weight)
        if "scale_and_zero" in parts:  # of each group, with code 8 for the zero
            scale, zero = parts["scale_and_zero"].double().permute(2, 1, 0).contiguous()
            return cls(None, scale, 8 - zero / scale)
        if "qdata" not in parts or "scale" not in parts:
            return None
        code, scale, zero_point = _unpacked(parts["qdata"]), parts["scale"], parts.get("zero_point")
        if parts.get("is_swizzled_scales"):
            scale = _in_rows(scale, weight.shape[0], weight.shape[1] // parts["block_size"])
        scale = _in_float64(scale)
        if parts.get("per_tensor_scale") is not None:
            scale = scale * parts["per_tensor_scale"].double()
        return cls(code, scale, torch.zeros_like(scale) if zero_point is None else zero_point.double())

    def values(self, weight: Tensor, grid: Codes) -> Tensor:
        """What the codes stand for (float64, of the weight's shape); packed ones are taken to be those of a float weight."""
        stored = self.codes
        if stored is None:
            (scale, zero_point), declared = self._by_block(), in_lanes(weight, grid.blocks)
            stored = codes(declared, grid, scale, zero_point, 0.0).low.reshape(declared.shape)
        scale, zero_point = (_spread(of, stored.shape) for of in (self.scale, self.zero_point))
        return (stored - zero_point) * scale

    def off(self, weight: Tensor, grid: Codes, error: float) -> dict[str, Tensor]:
        """Where blocks, or scales, zero points and codes, by these words, are not those of a weight on a grid: of scales by
        how much, elsewhere whether (bool). Scales, and positions on the grid, may be off by a relative `error`."""
        declared, (stored, zero_point) = in_lanes(weight, grid.blocks), self._by_block()
        scale, zero = qparams(declared, grid)
        if stored.shape != scale.shape:
            return {"blocks": torch.ones_like(scale)}
        apart = torch.where(uncertain(declared, grid), 0.0, (stored - scale).abs())
        shift = 1 + error * (grid.high - grid.low) if error else 0
        found = {
            "scales": torch.where(apart > error * scale, apart / scale, 0.0),
            "zero points": (zero_point - zero).abs() > shift,
        }
        if self.codes is not None:
            inside = codes(declared, grid, stored, zero_point, error)
            found["codes"] = inside.outside(in_blocks(in_lanes(self.codes, grid.blocks), grid.blocks))
        return found

    def _by_block(self) -> tuple[Tensor, Tensor]:
        """Scales and zero points, one block in each row."""
        scale, zero_point = (channels_last(of).reshape(-1, 1) for of in (self.scale, self.zero_point))
        return scale, zero_point


E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""What the codes of float4_e2m1 stand for, without the sign."""


def _unpacked(codes: Tensor) -> Tensor:
    """Codes (float64): two float4_e2m1 of a byte, of which the first is in the lower bits, or each as it is."""
    if codes.dtype not in (torch.uint8, torch.float4_e2m1fn_x2):
        return codes.double()
    both = codes.view(torch.uint8).long()
    table = torch.tensor([*E2M1, *(-value for value in E2M1)]).double()
    return table[torch.stack([both & 15, both >> 4], -1).flatten(-2)]


def _in_rows(tiles: Tensor, rows: int, columns: int) -> Tensor:
    """Scales of so many rows and columns that are stored in tiles of 128 by 4, as kernels for accelerators read them: element
    (r, c) of a tile at r % 32 * 16 + r // 32 * 4 + c (the documentation of cuBLAS, "1D block scaling factors layout")."""
    down, across = -(-rows // 128), -(-columns // 4)
    laid = tiles.reshape(down, across, 32, 4, 4).permute(0, 3, 2, 1, 4)
    return laid.reshape(down * 128, across * 4)[:rows, :columns]


def _in_float64(scale: Tensor) -> Tensor:
    """Scales in float64, of E8M0 too."""
    return 2.0 ** (scale.view(torch.uint8).double() - 127) if scale.dtype == torch.float8_e8m0fnu else scale.double()


def in_lanes(weight: Tensor, blocks: str | int) -> Tensor:
    """A weight whose last dimension has the declared blocks: of a convolution the input channels, or all of an output."""
    return channels_last(weight) if isinstance(blocks, int) else weight.flatten(1)


def _spread(of: Tensor, shape: torch.Size) -> Tensor:
    """Scales or zero points of blocks, for each code."""
    if of.dim() != len(shape):
        return of.expand(shape)
    return torch.kron(of, torch.ones([size // count for size, count in zip(shape, of.shape, strict=True)]).double())

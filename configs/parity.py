"""Comparison of a backend config with torch's config of the same backend."""

import dataclasses
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.ao.quantization.backend_config import BackendConfig, BackendPatternConfig, DTypeConfig

from .names import config_pattern, pattern_name

Difference = tuple[str, Any, Any]  # what differs, ours, torch's

_GETTERS = ("_root_node_getter", "_extra_inputs_getter")
_COMPARED_OTHERWISE = {"dtype_configs", "fuser_method", *_GETTERS}

# No value is the setting's default, so a fuser method that drops a setting differs.
_ARGUMENTS: dict[Any, tuple[float, ...]] = {
    nn.Linear: (4, 6),
    nn.LeakyReLU: (0.25,),
    **{getattr(nn, f"BatchNorm{dims}d"): (6, 0.5) for dims in (1, 2, 3)},
    **{getattr(nn, f"{conv}{dims}d"): (4, 6, 3, 2, 1) for conv in ("Conv", "ConvTranspose") for dims in (1, 2, 3)},
}


def drift(ours: BackendConfig, upstream: BackendConfig) -> list[str]:
    """Return a line for every difference between the two configs.

    Entries are compared field by field. Functions are compared by their results, since separately written functions
    are never equal: fuser methods on example modules, getters on placeholders for a pattern's nodes.
    """
    mine = {config_pattern(entry): entry for entry in ours.configs}
    theirs = {config_pattern(entry): entry for entry in upstream.configs}
    lines = [] if ours.name == upstream.name else [_line("name", ours.name, upstream.name)]
    lines += [f"only in ours: {pattern_name(pattern)}" for pattern in mine if pattern not in theirs]
    lines += [f"only in torch: {pattern_name(pattern)}" for pattern in theirs if pattern not in mine]
    shared = [pattern for pattern in mine if pattern in theirs], [pattern for pattern in theirs if pattern in mine]
    # One misplaced entry shifts all entries after it, so only the first difference is reported.
    for place, (our, their) in enumerate(zip(*shared, strict=True)):
        if our != their:
            lines.append(_line(f"order: entry {place}", our, their))
            break
    for pattern in shared[0]:
        lines += [
            f"{pattern_name(pattern)}: {_line(*difference)}"
            for difference in _differences(mine[pattern], theirs[pattern])
        ]
    return lines


def _line(what: str, ours: Any, theirs: Any) -> str:
    return f"{what}: ours {_shown(ours)}, torch's {_shown(theirs)}"


def _shown(value: Any) -> str:
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_shown(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_shown, value)) + "]"
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} of shape {tuple(value.shape)}"
    if isinstance(value, DTypeConfig):
        return "(" + ", ".join(f"{key} {item}" for key, item in _flat(value).items() if item is not None) + ")"
    return pattern_name(value) if isinstance(value, tuple) or hasattr(value, "__qualname__") else repr(value)


def _differences(ours: BackendPatternConfig, theirs: BackendPatternConfig) -> Iterator[Difference]:
    """Yield the differences between two entries of one pattern, in all fields that torch's entry has."""
    for field in vars(theirs):
        our, their = getattr(ours, field), getattr(theirs, field)
        if field not in _COMPARED_OTHERWISE and our != their:
            yield field.lstrip("_"), our, their
    yield from _dtype_differences(ours.dtype_configs, theirs.dtype_configs)
    yield from _function_difference("fuser_method", _fuser_outcomes, ours, theirs)
    for getter in _GETTERS:
        yield from _function_difference(getter, _getter_outcomes, ours, theirs)


def _dtype_differences(ours: list[DTypeConfig], theirs: list[DTypeConfig]) -> Iterator[Difference]:
    if len(ours) != len(theirs):
        yield "dtype_configs", ours, theirs
        return
    for place, pair in enumerate(zip(ours, theirs, strict=True)):
        our, their = map(_flat, pair)
        for name in our:
            if our[name] != their[name]:
                yield f"dtype_configs[{place}].{name}", our[name], their[name]


def _flat(dtype_config: DTypeConfig) -> dict[str, Any]:
    """Return a dtype config as a flat dict with keys such as `input_dtype.scale_min_lower_bound`."""
    flat = {}
    for name, value in dataclasses.asdict(dtype_config).items():
        parts = value.items() if isinstance(value, dict) else [("", value)]
        short = name.removesuffix("_with_constraints")
        flat.update({f"{short}.{part}".rstrip("."): item for part, item in parts})
    return flat


Outcomes = Callable[[Callable[..., Any], Any], Iterator[tuple[str, Any]]]


def _function_difference(
    field: str, outcomes: Outcomes, ours: BackendPatternConfig, theirs: BackendPatternConfig
) -> Iterator[Difference]:
    """Yield the first difference between the results of two functions of one field."""
    our, their = getattr(ours, field), getattr(theirs, field)
    name = field.lstrip("_")
    if our is their:
        return
    if our is None or their is None:
        yield name, our, their
        return
    pattern = theirs.pattern if theirs._pattern_complex_format is None else theirs._pattern_complex_format
    our_outcomes, their_outcomes = dict(outcomes(our, pattern)), dict(outcomes(their, pattern))
    for what in {**their_outcomes, **our_outcomes}:
        our_value, their_value = our_outcomes.get(what), their_outcomes.get(what)
        if not _same(our_value, their_value):
            yield _worst(f"{name} {what}".rstrip(), our_value, their_value)
            return


def _same(our: Any, their: Any) -> bool:
    if isinstance(our, torch.Tensor) and isinstance(their, torch.Tensor):
        return our.dtype == their.dtype and torch.equal(our, their)
    return bool(our == their)


def _worst(what: str, our: Any, their: Any) -> Difference:
    """Narrow a difference between tensors to the elements that differ most."""
    tensors = isinstance(our, torch.Tensor) and isinstance(their, torch.Tensor)
    if not tensors or our.dtype != their.dtype or our.shape != their.shape:
        return what, our, their
    place = tuple(map(int, torch.unravel_index((our - their).abs().argmax(), our.shape)))
    return f"{what} at {place}", our[place].item(), their[place].item()


def _fuser_outcomes(fuser: Callable[..., Any], pattern: Any) -> Iterator[tuple[str, Any]]:
    """Yield types, public attributes (such as the mode) and tensors of the fused modules."""
    for is_qat in (False, True):
        for mode in ("eval", "train", "mixed"):
            case = f"(is_qat={is_qat}, {mode})"
            fused = _result(fuser, is_qat, *_examples(pattern, mode))
            if not isinstance(fused, nn.Module):
                yield case, fused
                continue
            yield case, type(fused)
            for path, module in fused.named_modules():
                yield f"{case} type {path}", type(module)
                for name, value in vars(module).items():
                    if not name.startswith("_"):
                        yield f"{case} {path}.{name}", value
            for path, tensor in fused.state_dict().items():
                yield f"{case} tensor {path}", tensor


def _examples(pattern: Any, mode: str) -> Any:
    """Return the arguments that torch passes to the pattern's fuser method; in mode "mixed" only the first module trains."""
    modules: list[nn.Module] = []

    def example(part: Any) -> Any:
        if isinstance(part, tuple):
            return tuple(map(example, part))
        if part is F.relu:
            module: nn.Module = nn.ReLU()
        elif isinstance(part, type) and issubclass(part, nn.Module):
            module = part(*_ARGUMENTS.get(part, ()))
        else:
            return part
        modules.append(module.train(mode == "train" or (mode == "mixed" and not modules)))
        for place, tensor in enumerate(module.state_dict().values()):
            if tensor.is_floating_point():
                tensor.copy_(torch.arange(tensor.numel()).reshape(tensor.shape) / 8 + 1 + place)
        return module

    return example(pattern)


@dataclasses.dataclass(frozen=True)
class _Place:
    """A placeholder for the node that matches one place of a pattern; placeholders of different places are unequal."""

    name: str
    path: tuple[int, ...]

    def __repr__(self) -> str:
        return f"{self.name} at {self.path}"


def _places(pattern: Any, path: tuple[int, ...] = ()) -> Any:
    if isinstance(pattern, tuple):
        return tuple(_places(part, (*path, index)) for index, part in enumerate(pattern))
    return _Place(pattern_name(pattern), path)


def _getter_outcomes(getter: Callable[..., Any], pattern: Any) -> Iterator[tuple[str, Any]]:
    yield "", _result(getter, _places(pattern))


def _result(function: Callable[..., Any], *args: Any) -> Any:
    """Return the result of a call or the type of its exception, whose message may differ."""
    try:
        return function(*args)
    except Exception as error:
        return type(error)

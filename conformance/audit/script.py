"""The reproduction script of a part of a network: source that needs torch alone."""

from conformance.configs.engines import backend_of

from .parts import Part

TEMPLATE = '''"""{title}"""
import copy
import sys
import warnings

import torch
from torch import device, inf, nan, nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.quantize_fx import convert_fx, convert_to_reference_fx, prepare_fx
from torch.ao.quantization.backend_config import {config}

torch.set_grad_enabled(False)
torch.set_num_threads(1)
torch.backends.quantized.engine = "{engine}"
warnings.simplefilter("ignore")


{model}


def inputs():
    return {inputs}


def tensors(result):
    return [x.dequantize() for x in (result if isinstance(result, tuple) else (result,))]


def quantized():
    """The float model, prepared and calibrated, its reference model, and inputs that are held out."""
    torch.manual_seed(0)
    model, calibration, held_out = Model().eval(), inputs(), inputs()
    for module in model.modules():
        if getattr(module, "running_var", None) is not None:
            module.running_mean.normal_()
            module.running_var.uniform_(0.2, 4)
    prepared = prepare_fx(
        copy.deepcopy(model), get_default_qconfig_mapping("{engine}"), calibration, backend_config={config}()
    )
    prepared(*(x.clone() for x in calibration))
    return model, prepared, convert_to_reference_fx(copy.deepcopy(prepared), backend_config={config}()), held_out


{deviation}


if __name__ == "__main__":
    found = deviation()
    print("DEVIATES " + found if found else "CONFORMS")
    sys.exit(bool(found))
'''


OF_ENGINE = '''def deviation():
    """How the lowered model's output differs from the reference model's, or an empty text."""
    model, prepared, reference, held_out = quantized()
    expected = tensors(reference(*(x.clone() for x in held_out)))
    try:
        lowered = convert_fx(copy.deepcopy(prepared), backend_config={config}())
        got = tensors(lowered(*(x.clone() for x in held_out)))
    except Exception as error:
        return "lowered: {}: {}".format(type(error).__name__, str(error).splitlines()[0])
    for one, other in zip(got, expected):
        if one.shape != other.shape:
            return "numerics: shape {}, reference {}".format(tuple(one.shape), tuple(other.shape))
        gaps = other.unique().diff()
        if not gaps.numel():
            continue  # one value does not show what a step is
        step = float(gaps.min())
        off = (one - other).abs() > 1.5 * step
        if off.any():
            return "numerics: {} of {} codes are off by more than a step, by up to {:.0f} steps".format(
                int(off.sum()), off.numel(), float((one - other).abs().max()) / step
            )
    return ""'''

OF_REFERENCE = '''def deviation():
    """How the reference model's output differs from the float model's, or an empty text."""
    model, prepared, reference, held_out = quantized()
    for got, expected in zip(tensors(reference(*held_out)), tensors(model(*held_out))):
        decibels = float(10 * torch.log10(expected.square().sum() / (got - expected).square().sum()))
        if decibels < {limit}:
            return "reference: {:.1f} dB against the float model".format(decibels)
    return ""'''

REFERENCE_DB = 15.0
"""The SQNR below which a script says that a reference model is wrong: 8 bits leave more of random data."""


def script(part: Part, engine: str, title: str, *, of_reference: bool = False) -> str:
    """Return a script that prints `DEVIATES check: …` and exits with 1, or prints `CONFORMS` and exits with 0. It holds the
    engine to the reference model, or the reference model to the float model."""
    config = f"get_{backend_of(engine)}_backend_config"
    deviation = OF_REFERENCE.replace("{limit}", f"{REFERENCE_DB:g}") if of_reference else OF_ENGINE
    created = []
    for shape, last in zip(part.shapes, part.channels_last, strict=True):
        memory_format = {4: "channels_last", 5: "channels_last_3d"}.get(len(shape), "")
        suffix = f".to(memory_format=torch.{memory_format})" if last else ""
        created.append(f"torch.randn({', '.join(map(str, shape))}){suffix}")
    return TEMPLATE.format(
        title=title.replace("\\", "\\\\").replace('"', "'"),
        engine=engine,
        config=config,
        deviation=deviation.replace("{config}", config),
        model=part.source(),
        inputs=f"({', '.join(created)},)",
    )

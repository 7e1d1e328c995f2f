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


def deviation():
    """How the lowered model's output differs from the reference model's, or an empty text."""
    torch.manual_seed(0)
    model, calibration, held_out = Model().eval(), inputs(), inputs()
    prepared = prepare_fx(
        model, get_default_qconfig_mapping("{engine}"), calibration, backend_config={config}()
    )
    prepared(*(x.clone() for x in calibration))
    reference = convert_to_reference_fx(copy.deepcopy(prepared), backend_config={config}())
    expected = tensors(reference(*(x.clone() for x in held_out)))
    try:
        lowered = convert_fx(copy.deepcopy(prepared), backend_config={config}())
        got = tensors(lowered(*(x.clone() for x in held_out)))
    except Exception as error:
        return "lowered: {{}}: {{}}".format(type(error).__name__, str(error).splitlines()[0])
    for one, other in zip(got, expected):
        if one.shape != other.shape:
            return "numerics: shape {{}}, reference {{}}".format(tuple(one.shape), tuple(other.shape))
        gaps = other.unique().diff()
        step = float(gaps.min()) if gaps.numel() else 0.0
        off = (one - other).abs() > 1.5 * step
        if off.any():
            return "numerics: {{}} of {{}} codes are off by more than a step, by up to {{:.0f}} steps".format(
                int(off.sum()), off.numel(), float((one - other).abs().max()) / (step or 1.0)
            )
    return ""


if __name__ == "__main__":
    found = deviation()
    print("DEVIATES " + found if found else "CONFORMS")
    sys.exit(bool(found))
'''


def script(part: Part, engine: str, title: str) -> str:
    """Return a script that prints `DEVIATES check: …` and exits with 1, or prints `CONFORMS` and exits with 0."""
    created = []
    for shape, last in zip(part.shapes, part.channels_last, strict=True):
        memory_format = {4: "channels_last", 5: "channels_last_3d"}.get(len(shape), "")
        suffix = f".to(memory_format=torch.{memory_format})" if last else ""
        created.append(f"torch.randn({', '.join(map(str, shape))}){suffix}")
    return TEMPLATE.format(
        title=title.replace("\\", "\\\\").replace('"', "'"),
        engine=engine,
        config=f"get_{backend_of(engine)}_backend_config",
        model=part.source(),
        inputs=f"({', '.join(created)},)",
    )

"""The config of coremltools, `--backend-config corpus.coremltools_config:CONFIG`, and the modules that it fuses and trains,
`--operators corpus.coremltools_config`."""

import importlib
from collections.abc import Iterator

from torch.ao.quantization.backend_config import BackendConfig

from conformance.cases.operators.variant import Shape, Variant, batch_variants, data_variants, operands

_REGISTRY = importlib.import_module("coremltools.optimize.torch.quantization._backend_config")._BackendConfigRegistry
CONFIG: BackendConfig = BackendConfig("coremltools").set_backend_pattern_configs(_REGISTRY.backend_config.configs)

MODULES = "coremltools.optimize.torch.quantization.modules"
IMAGES: dict[int, Shape] = {1: (2, 4, 9), 2: (2, 4, 7, 5), 3: (2, 4, 5, 4, 4)}
CHANNELS = 6


def _variants(init: str, taken: Shape, output: Shape) -> list[Variant]:
    default = Variant("default", "self.op(x)", operands(taken), init, output=output, core=True)
    return [default, *batch_variants(default, 0, 1), *data_variants(default)]


def _convolutions() -> Iterator[tuple[str, list[Variant]]]:
    """Fused and QAT modules of convolutions and transposed ones, with a batch norm, an activation or both."""
    for rank, image in IMAGES.items():
        for transposed in (False, True):
            kind = "ConvTranspose" if transposed else "Conv"
            grown = 2 if transposed else -2
            output = (image[0], CHANNELS, *(size + grown for size in image[2:]))
            sizes = f"4, {CHANNELS}, 3"
            plain, norm, act = f"nn.{kind}{rank}d({sizes})", f"nn.BatchNorm{rank}d({CHANNELS})", "nn.ReLU()"
            own = f"{MODULES}.conv_transpose" if transposed else "nnqat"
            own_norm = f"{MODULES}.conv_transpose_fused" if transposed else "nniqat"
            trained = f"{own}.{kind}{rank}d({sizes}, qconfig=qconfig)"
            trained_norm = f"{own_norm}.{kind}Bn{rank}d({sizes}, qconfig=qconfig)"
            inits = {
                f"fused_modules.{kind}Act{rank}d": f"({plain}, {act})",
                f"fused_modules.{kind}BnAct{rank}d": f"({plain}, {norm}, {act})",
                f"qat_modules.{kind}Act{rank}d": f"({trained}, {act}, qconfig)",
                f"qat_modules.{kind}BnAct{rank}d": f"({trained_norm}, {act}, qconfig)",
            }
            if transposed:
                inits |= {
                    f"fused_modules.{kind}Bn{rank}d": f"({plain}, {norm})",
                    f"conv_transpose.{kind}{rank}d": f"({sizes}, qconfig=qconfig)",
                    f"conv_transpose_fused.{kind}Bn{rank}d": f"({sizes}, qconfig=qconfig)",
                }
            for name, arguments in inits.items():
                yield f"{MODULES}.{name}", _variants(f"{MODULES}.{name}{arguments}", image, output)


def _linear() -> Iterator[tuple[str, list[Variant]]]:
    for module, arguments in (
        ("fused_modules", "(nn.Linear(16, 8), nn.ReLU())"),
        ("qat_modules", "(nnqat.Linear(16, 8, qconfig=qconfig), nn.ReLU(), qconfig)"),
    ):
        name = f"{MODULES}.{module}.LinearAct"
        yield name, _variants(f"{name}{arguments}", (3, 16), (3, 8))


OPERATORS: dict[str, list[Variant]] = dict([*_convolutions(), *_linear()])

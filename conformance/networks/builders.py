"""Builders of networks whose packages return more than can be traced."""

from importlib import import_module
from typing import Any

from torch import Tensor, nn


class DetectorBody(nn.Module):
    """The backbone and the head of a detector of torchvision, without anchors and the selection of boxes."""

    def __init__(self, backbone: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.backbone, self.head = backbone, head

    def forward(self, x: Tensor) -> list[Tensor]:
        """Return what the head returns for all levels of features."""
        predictions = self.head(list(self.backbone(x).values()))
        if isinstance(predictions, dict):
            return list(predictions.values())
        return [prediction for kind in predictions for prediction in kind]


def detector(name: str) -> nn.Module:
    """Return the body of the detector `name` of torchvision, and of a two-stage detector its region proposal network."""
    detection = import_module("torchvision.models.detection")
    whole = getattr(detection, name)(weights=None, weights_backbone=None)
    return DetectorBody(whole.backbone, whole.rpn.head if hasattr(whole, "rpn") else whole.head)


def segmentation_model(architecture: str, encoder_name: str) -> nn.Module:
    """Return an architecture of segmentation_models_pytorch."""
    package: Any = import_module("segmentation_models_pytorch")
    model: Any = getattr(package, architecture)(encoder_name=encoder_name, encoder_weights=None)
    model.requires_divisible_input_shape = (
        False  # it compares the shape of the input, which a traced tensor does not have
    )
    return model  # type: ignore[no-any-return]

"""Weights that keep the variance of a signal."""

from torch import nn


def with_he_weights(model: nn.Module) -> nn.Module:
    """Set the weights of all layers to those of He et al., "Delving deep into rectifiers", 2015, and return the model.

    With torch's default weights the variance falls to a sixth in each layer with ReLU. Without batch norms, the output of a
    deep network would no longer depend on its input.
    """
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.kaiming_normal_(parameter)
    return model

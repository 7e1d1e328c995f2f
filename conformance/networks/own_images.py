"""Networks for images, video and points, written as their papers have them, with fewer channels."""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def with_he_weights(model: nn.Module) -> nn.Module:
    """Set the weights of all layers to those of He et al., "Delving deep into rectifiers", 2015, and return the model.

    With torch's default weights the variance falls to a sixth in each layer with ReLU. Without batch norms, the output of a
    deep network would no longer depend on its input.
    """
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.kaiming_normal_(parameter)
    return model


class LeNet5(nn.Module):
    """LeCun et al., "Gradient-based learning applied to document recognition", 1998. (N, 1, 32, 32) -> (N, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.c1 = nn.Conv2d(1, 6, 5)
        self.c3 = nn.Conv2d(6, 16, 5)
        self.c5 = nn.Linear(16 * 5 * 5, 120)
        self.f6 = nn.Linear(120, 84)
        self.output = nn.Linear(84, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.avg_pool2d(torch.tanh(self.c1(x)), 2)
        x = F.avg_pool2d(torch.tanh(self.c3(x)), 2)
        x = torch.tanh(self.c5(torch.flatten(x, 1)))
        result: Tensor = self.output(torch.tanh(self.f6(x)))
        return result


def dcgan_generator(latent: int = 100, width: int = 32) -> nn.Module:
    """Radford et al., "Unsupervised representation learning with deep convolutional GANs", 2016.

    (N, `latent`, 1, 1) -> (N, 3, 64, 64) in (-1, 1).
    """
    layers: list[nn.Module] = []
    channels = latent
    for n, factor in enumerate((8, 4, 2, 1)):
        stride, padding = (2, 1) if n else (1, 0)
        layers += [
            nn.ConvTranspose2d(channels, width * factor, 4, stride, padding, bias=False),
            nn.BatchNorm2d(width * factor),
            nn.ReLU(inplace=True),
        ]
        channels = width * factor
    return nn.Sequential(*layers, nn.ConvTranspose2d(channels, 3, 4, 2, 1, bias=False), nn.Tanh())


def dcgan_discriminator(width: int = 32) -> nn.Module:
    """The other network of `dcgan_generator`. (N, 3, 64, 64) -> (N, 1), a probability."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True)]
    for factor in (1, 2, 4):
        layers += [
            nn.Conv2d(width * factor, width * factor * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(width * factor * 2),
            nn.LeakyReLU(0.2, inplace=True),
        ]
    return nn.Sequential(*layers, nn.Conv2d(width * 8, 1, 4, 1, 0, bias=False), nn.Flatten(), nn.Sigmoid())


class Pix2PixGenerator(nn.Module):
    """The U-Net of Isola et al., "Image-to-image translation with conditional adversarial networks", 2017.

    (N, 3, 64, 64) -> (N, 3, 64, 64) in (-1, 1).
    """

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        down = [3, width, width * 2, width * 4, width * 8, width * 8]
        up = [width * 8, width * 4, width * 2, width]
        self.encoder = nn.ModuleList(
            nn.Sequential(
                nn.LeakyReLU(0.2) if n else nn.Identity(),
                nn.Conv2d(before, after, 4, 2, 1),
                nn.BatchNorm2d(after) if 0 < n < len(down) - 2 else nn.Identity(),
            )
            for n, (before, after) in enumerate(pairwise(down))
        )
        self.decoder = nn.ModuleList()
        channels = down[-1]
        for after in up:
            self.decoder.append(
                nn.Sequential(
                    nn.ReLU(), nn.ConvTranspose2d(channels, after, 4, 2, 1), nn.BatchNorm2d(after), nn.Dropout(0.5)
                )
            )
            channels = 2 * after
        self.last = nn.Sequential(nn.ReLU(), nn.ConvTranspose2d(channels, 3, 4, 2, 1), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        skips: list[Tensor] = []
        for layer in self.encoder:
            x = layer(x)
            skips.append(x)
        for layer, skip in zip(self.decoder, reversed(skips[:-1]), strict=True):
            x = torch.cat([layer(x), skip], 1)
        result: Tensor = self.last(x)
        return result


class _ReflectedResidual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.block = nn.Sequential(
            nn.ReflectionPad2d(1),
            nn.Conv2d(channels, channels, 3),
            nn.InstanceNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.ReflectionPad2d(1),
            nn.Conv2d(channels, channels, 3),
            nn.InstanceNorm2d(channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = x + self.block(x)
        return result


def cyclegan_generator(width: int = 16, residuals: int = 3) -> nn.Module:
    """Zhu et al., "Unpaired image-to-image translation", 2017. (N, 3, H, W) -> (N, 3, H, W) in (-1, 1)."""
    layers: list[nn.Module] = [nn.ReflectionPad2d(3), nn.Conv2d(3, width, 7), nn.InstanceNorm2d(width), nn.ReLU()]
    for channels in (width, width * 2):
        layers += [nn.Conv2d(channels, channels * 2, 3, 2, 1), nn.InstanceNorm2d(channels * 2), nn.ReLU(inplace=True)]
    layers += [_ReflectedResidual(width * 4) for _ in range(residuals)]
    for channels in (width * 4, width * 2):
        layers += [
            nn.ConvTranspose2d(channels, channels // 2, 3, 2, 1, output_padding=1),
            nn.InstanceNorm2d(channels // 2),
            nn.ReLU(inplace=True),
        ]
    return nn.Sequential(*layers, nn.ReflectionPad2d(3), nn.Conv2d(width, 3, 7), nn.Tanh())


def fsrcnn(scale: int = 2, width: int = 56, narrow: int = 12, depth: int = 4) -> nn.Module:
    """Dong et al., "Accelerating the super-resolution convolutional neural network", 2016. (N, 1, H, W) -> twice the size."""
    layers: list[nn.Module] = [nn.Conv2d(1, width, 5, padding=2), nn.PReLU(width), nn.Conv2d(width, narrow, 1)]
    layers.append(nn.PReLU(narrow))
    for _ in range(depth):
        layers += [nn.Conv2d(narrow, narrow, 3, padding=1), nn.PReLU(narrow)]
    layers += [nn.Conv2d(narrow, width, 1), nn.PReLU(width)]
    layers.append(nn.ConvTranspose2d(width, 1, 9, scale, 4, output_padding=scale - 1))
    return with_he_weights(nn.Sequential(*layers))


def espcn(scale: int = 2) -> nn.Module:
    """Shi et al., "Real-time single image super-resolution", 2016. (N, 1, H, W) -> twice the size."""
    return nn.Sequential(
        nn.Conv2d(1, 64, 5, padding=2),
        nn.Tanh(),
        nn.Conv2d(64, 32, 3, padding=1),
        nn.Tanh(),
        nn.Conv2d(32, scale**2, 3, padding=1),
        nn.PixelShuffle(scale),
    )


class EDSR(nn.Module):
    """Lim et al., "Enhanced deep residual networks for super-resolution", 2017. (N, 3, H, W) -> twice the size."""

    def __init__(self, width: int = 32, blocks: int = 4) -> None:
        super().__init__()
        self.head = nn.Conv2d(3, width, 3, padding=1)
        self.body = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1))
            for _ in range(blocks)
        )
        self.after_body = nn.Conv2d(width, width, 3, padding=1)
        self.tail = nn.Sequential(
            nn.Conv2d(width, 4 * width, 3, padding=1), nn.PixelShuffle(2), nn.Conv2d(width, 3, 3, padding=1)
        )

    def forward(self, x: Tensor) -> Tensor:
        first = x = self.head(x)
        for block in self.body:
            x = x + 0.1 * block(x)  # the paper's residual scaling
        result: Tensor = self.tail(self.after_body(x) + first)
        return result


class VariationalAutoencoder(nn.Module):
    """Kingma and Welling, "Auto-encoding variational Bayes", 2014, without noise.

    (N, 1, 28, 28) -> reconstruction (N, 784), means and log-variances (N, `latent`).
    """

    def __init__(self, latent: int = 20) -> None:
        super().__init__()
        self.encoder = nn.Linear(784, 400)
        self.mean = nn.Linear(400, latent)
        self.log_variance = nn.Linear(400, latent)
        self.decoder = nn.Sequential(nn.Linear(latent, 400), nn.ReLU(), nn.Linear(400, 784), nn.Sigmoid())

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = F.relu(self.encoder(torch.flatten(x, 1)))
        mean = self.mean(hidden)
        return self.decoder(mean), mean, self.log_variance(hidden)


class C3D(nn.Module):
    """Tran et al., "Learning spatiotemporal features with 3D convolutional networks", 2015. (N, 3, 8, 64, 64) -> (N, 101)."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv3d(3, width, 3, padding=1), nn.ReLU(), nn.MaxPool3d((1, 2, 2))]
        for before, after in ((1, 2), (2, 4), (4, 8)):
            layers += [nn.Conv3d(width * before, width * after, 3, padding=1), nn.ReLU(), nn.MaxPool3d(2)]
        self.features = nn.Sequential(*layers)
        self.fc6 = nn.Linear(width * 8 * 4 * 4, 128)
        self.fc7 = nn.Linear(128, 101)
        self.dropout = nn.Dropout()

    def forward(self, x: Tensor) -> Tensor:
        x = torch.flatten(self.features(x), 1)
        result: Tensor = self.fc7(self.dropout(F.relu(self.fc6(x))))
        return result


class PointNet(nn.Module):
    """Qi et al., "PointNet", 2017, with the transform of its input. (N, 3, points) -> (N, 40)."""

    def __init__(self) -> None:
        super().__init__()
        self.transform = _point_features((3, 32, 64, 128))
        self.matrix = nn.Linear(128, 9)
        self.features = _point_features((3, 64, 128, 256))
        self.classifier = nn.Sequential(
            nn.Linear(256, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Dropout(0.3), nn.Linear(128, 40)
        )
        self.register_buffer("identity", torch.eye(3).flatten())

    def forward(self, x: Tensor) -> Tensor:
        matrix = self.matrix(torch.max(self.transform(x), 2)[0]) + self.identity
        x = torch.bmm(x.transpose(1, 2), matrix.view(-1, 3, 3)).transpose(1, 2)
        result: Tensor = self.classifier(torch.max(self.features(x), 2)[0])
        return result


def _point_features(widths: tuple[int, ...]) -> nn.Module:
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Conv1d(before, after, 1), nn.BatchNorm1d(after), nn.ReLU()]
    return nn.Sequential(*layers)

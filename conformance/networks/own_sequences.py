"""Networks for speech, text and recommendation, written as their papers have them, with fewer channels and layers."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .own_images import with_he_weights


def m5(classes: int = 35, width: int = 32) -> nn.Module:
    """Dai et al., "Very deep convolutional neural networks for raw waveforms", 2017. (N, 1, samples) -> (N, `classes`)."""
    layers: list[nn.Module] = []
    channels = 1
    for after, kernel, stride in ((width, 80, 16), (width, 3, 1), (2 * width, 3, 1), (2 * width, 3, 1)):
        layers += [nn.Conv1d(channels, after, kernel, stride), nn.BatchNorm1d(after), nn.ReLU(), nn.MaxPool1d(4)]
        channels = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(channels, classes))


def wav2letter(features: int = 40, classes: int = 29, width: int = 64) -> nn.Module:
    """Collobert et al., "Wav2Letter", 2016. (N, `features`, frames) -> log-probabilities (N, `classes`, frames / 2)."""
    layers: list[nn.Module] = [nn.Conv1d(features, width, 48, 2, 23), nn.ReLU(inplace=True)]
    for _ in range(7):
        layers += [nn.Conv1d(width, width, 7, 1, 3), nn.ReLU(inplace=True)]
    layers += [nn.Conv1d(width, 4 * width, 32, 1, 16), nn.ReLU(inplace=True)]
    layers += [nn.Conv1d(4 * width, 4 * width, 1), nn.ReLU(inplace=True)]
    return with_he_weights(nn.Sequential(*layers, nn.Conv1d(4 * width, classes, 1), nn.LogSoftmax(1)))


class _JasperBlock(nn.Module):
    """Separable convolutions with batch norm, and a residual."""

    def __init__(self, before: int, after: int, kernel: int, repeat: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = before
        for n in range(repeat):
            layers += [nn.ReLU(), nn.Dropout(0.2)] if n else []
            layers += [
                nn.Conv1d(channels, channels, kernel, padding=kernel // 2, groups=channels, bias=False),
                nn.Conv1d(channels, after, 1, bias=False),
                nn.BatchNorm1d(after),
            ]
            channels = after
        self.layers = nn.Sequential(*layers)
        self.residual = nn.Sequential(nn.Conv1d(before, after, 1, bias=False), nn.BatchNorm1d(after))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.layers(x) + self.residual(x))


def quartznet(features: int = 40, classes: int = 29) -> nn.Module:
    """Kriman et al., "QuartzNet", 2020, the separable Jasper. (N, `features`, frames) -> (N, `classes`, frames / 2)."""
    return nn.Sequential(
        nn.Conv1d(features, 64, 33, 2, 16, bias=False),
        nn.BatchNorm1d(64),
        nn.ReLU(),
        _JasperBlock(64, 64, 33, 3),
        _JasperBlock(64, 128, 39, 3),
        nn.Conv1d(128, 128, 29, padding=28, dilation=2, bias=False),
        nn.BatchNorm1d(128),
        nn.ReLU(),
        nn.Conv1d(128, classes, 1),
    )


class DeepSpeech2(nn.Module):
    """Amodei et al., "Deep Speech 2", 2016. (N, 1, 64, frames) -> (N, frames / 2, `classes`)."""

    def __init__(self, classes: int = 29, width: int = 16, hidden: int = 64) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(1, width, (41, 11), (2, 2), (20, 5)),
            nn.BatchNorm2d(width),
            nn.Hardtanh(0, 20, inplace=True),
            nn.Conv2d(width, width, (21, 11), (2, 1), (10, 5)),
            nn.BatchNorm2d(width),
            nn.Hardtanh(0, 20, inplace=True),
        )
        self.recurrent = nn.GRU(width * 16, hidden, num_layers=2, batch_first=True, bidirectional=True)
        self.classifier = nn.Linear(2 * hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.convolutions(x)
        x = torch.flatten(x, 1, 2).transpose(1, 2)
        result: Tensor = self.classifier(self.recurrent(x)[0])
        return result


class KeywordCRNN(nn.Module):
    """Arik et al., "Convolutional recurrent neural networks for keyword spotting", 2017. (N, 1, 40, frames) -> (N, 12)."""

    def __init__(self, width: int = 32, hidden: int = 32) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, width, (20, 5), (8, 2))
        self.recurrent = nn.GRU(width * 3, hidden, num_layers=2, batch_first=True, bidirectional=True)
        self.dense = nn.Linear(2 * hidden, 64)
        self.classifier = nn.Linear(64, 12)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.convolution(x))
        x = self.recurrent(x.flatten(1, 2).transpose(1, 2))[0]
        result: Tensor = self.classifier(F.relu(self.dense(x[:, -1])))
        return result


def keyword_dscnn(width: int = 64) -> nn.Module:
    """DS-CNN of Zhang et al., "Hello Edge: keyword spotting on microcontrollers", 2017. (N, 1, 49, 10) -> (N, 12)."""
    layers: list[nn.Module] = [nn.Conv2d(1, width, (10, 4), 2, (4, 1)), nn.BatchNorm2d(width), nn.ReLU()]
    for _ in range(4):
        layers += [nn.Conv2d(width, width, 3, padding=1, groups=width), nn.BatchNorm2d(width), nn.ReLU()]
        layers += [nn.Conv2d(width, width, 1), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(width, 12))


class _SeparatorBlock(nn.Module):
    """A dilated separable convolution with global layer norm, and the residual and skip paths."""

    def __init__(self, channels: int, hidden: int, dilation: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(channels, hidden, 1),
            nn.PReLU(),
            nn.GroupNorm(1, hidden),
            nn.Conv1d(hidden, hidden, 3, padding=dilation, dilation=dilation, groups=hidden),
            nn.PReLU(),
            nn.GroupNorm(1, hidden),
        )
        self.residual = nn.Conv1d(hidden, channels, 1)
        self.skip = nn.Conv1d(hidden, channels, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.layers(x)
        return x + self.residual(hidden), self.skip(hidden)


class ConvTasNet(nn.Module):
    """Luo and Mesgarani, "Conv-TasNet", 2019, for two speakers. (N, 1, samples) -> (N, 2, samples)."""

    def __init__(self, filters: int = 64, channels: int = 32, blocks: int = 5) -> None:
        super().__init__()
        self.filters = filters
        self.encoder = nn.Conv1d(1, filters, 16, 8, bias=False)
        self.norm = nn.GroupNorm(1, filters)
        self.bottleneck = nn.Conv1d(filters, channels, 1)
        self.blocks = nn.ModuleList(_SeparatorBlock(channels, 2 * channels, 2**n) for n in range(blocks))
        self.masks = nn.Sequential(nn.PReLU(), nn.Conv1d(channels, 2 * filters, 1), nn.Sigmoid())
        self.decoder = nn.ConvTranspose1d(filters, 1, 16, 8, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        encoded = F.relu(self.encoder(x))
        x = self.bottleneck(self.norm(encoded))
        total: Tensor | None = None
        for block in self.blocks:
            x, skip = block(x)
            total = skip if total is None else total + skip
        first, second = self.masks(total).split(self.filters, 1)
        return torch.cat([self.decoder(encoded * first), self.decoder(encoded * second)], 1)


class WaveNet(nn.Module):
    """Van den Oord et al., "WaveNet", 2016. (N, 1, samples) -> (N, 256, samples - 30)."""

    def __init__(self, width: int = 32, layers: int = 4) -> None:
        super().__init__()
        self.causal = nn.Conv1d(1, width, 1)
        self.filters = nn.ModuleList(nn.Conv1d(width, width, 3, dilation=2**n) for n in range(layers))
        self.gates = nn.ModuleList(nn.Conv1d(width, width, 3, dilation=2**n) for n in range(layers))
        self.residuals = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(layers))
        self.skips = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(layers))
        self.lost = [sum(2 * 2**k for k in range(n + 1, layers)) for n in range(layers)]
        self.end = nn.Sequential(nn.ReLU(), nn.Conv1d(width, width, 1), nn.ReLU(), nn.Conv1d(width, 256, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.causal(x)
        skips: list[Tensor] = []
        for n, (filtering, gate) in enumerate(zip(self.filters, self.gates, strict=True)):
            hidden = torch.tanh(filtering(x)) * torch.sigmoid(gate(x))
            skips.append(self.skips[n](hidden)[:, :, self.lost[n] :])
            x = x[:, :, 2 * 2**n :] + self.residuals[n](hidden)
        total = skips[0]
        for skip in skips[1:]:
            total = total + skip
        result: Tensor = self.end(total)
        return result


class TextCNN(nn.Module):
    """Kim, "Convolutional neural networks for sentence classification", 2014. (N, length) -> (N, `classes`)."""

    def __init__(self, vocabulary: int = 1000, width: int = 64, classes: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.convolutions = nn.ModuleList(nn.Conv1d(width, 32, kernel) for kernel in (3, 4, 5))
        self.dropout = nn.Dropout(0.5)
        self.classifier = nn.Linear(96, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens).transpose(1, 2)
        x = torch.cat([F.adaptive_max_pool1d(F.relu(layer(x)), 1) for layer in self.convolutions], 1)
        result: Tensor = self.classifier(self.dropout(x.flatten(1)))
        return result


class FastText(nn.Module):
    """Joulin et al., "Bag of tricks for efficient text classification", 2017. (N, length) -> (N, `classes`)."""

    def __init__(self, vocabulary: int = 1000, width: int = 32, classes: int = 4) -> None:
        super().__init__()
        self.embedding = nn.EmbeddingBag(vocabulary, width, mode="mean")
        self.classifier = nn.Linear(width, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        result: Tensor = self.classifier(self.embedding(tokens))
        return result


class RecurrentClassifier(nn.Module):
    """An embedding, a recurrent network of `kind` `LSTM` or `GRU`, and a classifier of its last state.

    As in the word-level classifiers of Graves, "Supervised sequence labelling", 2012. (N, length) -> (N, `classes`).
    """

    def __init__(self, kind: str, vocabulary: int = 1000, hidden: int = 64, classes: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.recurrent = getattr(nn, kind)(hidden, hidden, num_layers=2, batch_first=True, dropout=0.2)
        self.classifier = nn.Linear(hidden, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        states = self.recurrent(self.embedding(tokens))[0]
        result: Tensor = self.classifier(states[:, -1])
        return result


class LSTMTagger(nn.Module):
    """Huang et al., "Bidirectional LSTM-CRF models for sequence tagging", 2015, without the CRF. (N, length) -> per token."""

    def __init__(self, vocabulary: int = 1000, hidden: int = 32, tags: int = 9) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.recurrent = nn.LSTM(hidden, hidden, batch_first=True, bidirectional=True)
        self.tags = nn.Linear(2 * hidden, tags)

    def forward(self, tokens: Tensor) -> Tensor:
        result: Tensor = self.tags(self.recurrent(self.embedding(tokens))[0])
        return result


class TemporalConvolution(nn.Module):
    """Bai et al., "An empirical evaluation of generic convolutional and recurrent networks", 2018. (N, 1, T) -> (N, 10)."""

    def __init__(self, width: int = 32, levels: int = 4) -> None:
        super().__init__()
        widths = [1, *[width] * levels]
        self.first = nn.ModuleList(nn.Conv1d(widths[n], width, 7, dilation=2**n) for n in range(levels))
        self.second = nn.ModuleList(nn.Conv1d(width, width, 7, dilation=2**n) for n in range(levels))
        self.shortcut = nn.Conv1d(1, width, 1)
        self.classifier = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        for n, (first, second) in enumerate(zip(self.first, self.second, strict=True)):
            padding = (6 * 2**n, 0)
            hidden = F.relu(first(F.pad(x, padding)))
            hidden = F.relu(second(F.pad(hidden, padding)))
            x = F.relu(hidden + (x if n else self.shortcut(x)))
        result: Tensor = self.classifier(x[:, :, -1])
        return result

"""Transformers and recommenders, written as their papers have them, with fewer channels and layers."""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class SelfAttention(nn.Module):
    """Vaswani et al., "Attention is all you need", 2017, with separate projections. (N, length, width) -> the same shape."""

    mask: Tensor

    def __init__(self, width: int, heads: int, length: int, *, causal: bool) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.output = nn.Linear(width, width)
        above = torch.ones(length, length).triu(1) * (-1e4 if causal else 0.0)
        self.register_buffer("mask", above)
        self.causal = causal

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            layer(x).unflatten(-1, (self.heads, self.size)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(self.size)
        if self.causal:
            scores = scores + self.mask
        context = torch.matmul(F.softmax(scores, -1), value)
        result: Tensor = self.output(context.transpose(1, 2).flatten(2))
        return result


class _EncoderLayer(nn.Module):
    """Norms after the residual additions, as in BERT."""

    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.attention = SelfAttention(width, heads, length, causal=False)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.expand, self.reduce = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(x + self.attention(x))
        result: Tensor = self.norm2(x + self.reduce(F.gelu(self.expand(x))))
        return result


class Bert(nn.Module):
    """Devlin et al., "BERT", 2019. (N, `length`) -> (N, `classes`)."""

    def __init__(self, length: int = 32, width: int = 64, layers: int = 2, classes: int = 2) -> None:
        super().__init__()
        self.tokens = nn.Embedding(1000, width)
        self.positions = nn.Parameter(torch.randn(length, width) * 0.02)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.Sequential(*(_EncoderLayer(width, 4, length) for _ in range(layers)))
        self.pooler = nn.Linear(width, width)
        self.classifier = nn.Linear(width, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.layers(self.norm(self.tokens(tokens) + self.positions))
        result: Tensor = self.classifier(torch.tanh(self.pooler(x[:, 0])))
        return result


class _DecoderLayer(nn.Module):
    """Norms before the layers of a residual branch, as in GPT-2."""

    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = SelfAttention(width, heads, length, causal=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        result: Tensor = x + self.mlp(self.norm2(x))
        return result


class Gpt2(nn.Module):
    """Radford et al., "Language models are unsupervised multitask learners", 2019. (N, `length`) -> (N, `length`, 1000)."""

    def __init__(self, length: int = 32, width: int = 64, layers: int = 2) -> None:
        super().__init__()
        self.tokens = nn.Embedding(1000, width)
        self.positions = nn.Parameter(torch.randn(length, width) * 0.02)
        self.layers = nn.Sequential(*(_DecoderLayer(width, 4, length) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 1000, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.layers(self.tokens(tokens) + self.positions)
        result: Tensor = self.head(self.norm(x))
        return result


class Conformer(nn.Module):
    """One block of Gulati et al., "Conformer", 2020, between two linear layers. (N, `frames`, 40) -> (N, `frames`, 29)."""

    def __init__(self, frames: int = 48, width: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Linear(40, width)
        self.feed_forward = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))
            for _ in range(2)
        )
        self.attention = nn.Sequential(nn.LayerNorm(width), SelfAttention(width, 4, frames, causal=False))
        self.before_convolution = nn.LayerNorm(width)
        self.convolution = nn.Sequential(
            nn.Conv1d(width, 2 * width, 1),
            nn.GLU(1),
            nn.Conv1d(width, width, 15, padding=7, groups=width),
            nn.BatchNorm1d(width),
            nn.SiLU(),
            nn.Conv1d(width, width, 1),
        )
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, 29)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embedding(x)
        x = x + 0.5 * self.feed_forward[0](x)
        x = x + self.attention(x)
        x = x + self.convolution(self.before_convolution(x).transpose(1, 2)).transpose(1, 2)
        x = x + 0.5 * self.feed_forward[1](x)
        result: Tensor = self.output(self.norm(x))
        return result


class MultiheadClassifier(nn.Module):
    """A classifier of sequences with the `nn.MultiheadAttention` of torch. (N, length, 32) -> (N, 10)."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))
        self.classifier = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(x + self.attention(x, x, x, need_weights=False)[0])
        x = self.norm2(x + self.mlp(x))
        result: Tensor = self.classifier(x.mean(1))
        return result


def _mlp(*widths: int) -> nn.Module:
    """Linear layers, each followed by ReLU."""
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers)


class DLRM(nn.Module):
    """Naumov et al., "Deep learning recommendation model", 2019.

    13 numbers (N, 13) and `tables` bags of 3 indices each (N, 3) -> (N, 1), a probability.
    """

    rows: Tensor
    columns: Tensor

    def __init__(self, tables: int = 6, entries: int = 200, width: int = 16) -> None:
        super().__init__()
        self.bottom = _mlp(13, 64, 32, width)
        self.tables = nn.ModuleList(nn.EmbeddingBag(entries, width, mode="sum") for _ in range(tables))
        rows, columns = torch.tril_indices(tables + 1, tables + 1, -1)
        self.register_buffer("rows", rows)
        self.register_buffer("columns", columns)
        self.top = nn.Sequential(_mlp(width + len(rows), 64, 32), nn.Linear(32, 1), nn.Sigmoid())

    def forward(self, x: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor, e: Tensor, f: Tensor) -> Tensor:
        dense = self.bottom(x)
        bags = [table(indices) for table, indices in zip(self.tables, (a, b, c, d, e, f), strict=True)]
        vectors = torch.stack([dense, *bags], 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        result: Tensor = self.top(torch.cat([dense, products[:, self.rows, self.columns]], 1))
        return result


class WideAndDeep(nn.Module):
    """Cheng et al., "Wide & deep learning for recommender systems", 2016. (N, 8) numbers, (N, 6) indices -> (N, 1)."""

    def __init__(self, entries: int = 200, width: int = 16) -> None:
        super().__init__()
        self.wide = nn.EmbeddingBag(entries, 1, mode="sum")
        self.embedding = nn.Embedding(entries, width)
        self.deep = nn.Sequential(_mlp(8 + 6 * width, 64, 32), nn.Linear(32, 1))

    def forward(self, numbers: Tensor, indices: Tensor) -> Tensor:
        deep = self.deep(torch.cat([numbers, self.embedding(indices).flatten(1)], 1))
        return torch.sigmoid(self.wide(indices) + deep)


class NeuMF(nn.Module):
    """He et al., "Neural collaborative filtering", 2017. Users (N,) and items (N,) -> (N, 1)."""

    def __init__(self, users: int = 300, items: int = 500, width: int = 16) -> None:
        super().__init__()
        self.user_factors, self.item_factors = nn.Embedding(users, width), nn.Embedding(items, width)
        self.user_features, self.item_features = nn.Embedding(users, width), nn.Embedding(items, width)
        self.mlp = _mlp(2 * width, 64, 32, 16)
        self.predict = nn.Linear(width + 16, 1)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        product = self.user_factors(user) * self.item_factors(item)
        hidden = self.mlp(torch.cat([self.user_features(user), self.item_features(item)], -1))
        return torch.sigmoid(self.predict(torch.cat([product, hidden], -1)))


class DeepFM(nn.Module):
    """Guo et al., "DeepFM", 2017. (N, `fields`) indices -> (N, 1)."""

    def __init__(self, fields: int = 8, entries: int = 200, width: int = 16) -> None:
        super().__init__()
        self.linear = nn.Embedding(entries, 1)
        self.embedding = nn.Embedding(entries, width)
        # the sum of products of standard normals would saturate the output
        nn.init.normal_(self.embedding.weight, std=0.2)
        self.deep = nn.Sequential(_mlp(fields * width, 64, 32), nn.Linear(32, 1))

    def forward(self, indices: Tensor) -> Tensor:
        first = self.linear(indices).sum(1)
        factors = self.embedding(indices)
        square = factors.sum(1).pow(2) - factors.pow(2).sum(1)
        second = 0.5 * square.sum(1, keepdim=True)
        return torch.sigmoid(first + second + self.deep(factors.flatten(1)))

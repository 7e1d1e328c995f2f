"""Families of operators, by the name of a pattern's root operator."""

import re

FAMILIES = {
    "convolution": r"(nn|F|nni|nnqat|nniqat)\.[Cc]onv(?!.*[Tt]ranspose).*",
    "transposed convolution": r".*[Cc]onv_?[Tt]ranspose.*",
    "linear": r".*\.[Ll]inear.*",
    "arithmetic": r"(operator|torch)\.(add|sub|mul|matmul|floordiv)",
    "joining": r"torch\.(cat|concat|concatenate|stack)",
    "pooling": r".*[Pp]ool[123]d",
    "fixed qparams": r".*(sigmoid_?|tanh_?|Sigmoid|Tanh|Softmax)",
    "normalization": r".*([Nn]orm).*|nni\.BNReLU.*",
    "recurrent": r"nn\.(LSTM|GRU|RNN)(Cell)?",
    "embedding": r".*[Ee]mbedding(Bag)?",
    "activation": r".*([Rr]e[Ll][Uu]6?_?|elu_?|ELU|[Hh]ardswish|[Hh]ardtanh_?|clamp|[Dd]ropout|Identity|relu6?_?)",
    "shape": r".*",
}
"""Regular expressions of families over root operators; an operator belongs to the first family that matches."""


def family_named(root: str) -> str:
    """Name of the family of a pattern's root operator."""
    return next(name for name, expression in FAMILIES.items() if re.fullmatch(expression, root))

"""Faults of dynamic and float16 layers, embeddings, and recurrent layers."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .convolutions import with_argument, with_codes
from .fault import case
from .kernels import Call, Kernel, kernel_faults, values

DYNAMIC = case("nn.Linear", dtypes="dynamic-quint8", backend="qnnpack")
HALF = case("nn.Linear", dtypes="dynamic-float16")
LSTM = case("nn.LSTM", dtypes="dynamic-float16")
EMBEDDING = case("nn.Embedding", dtypes="weight-quint8")
BAG = case("nn.EmbeddingBag", "sum", "weight-quint8")


def cell(name: str, variant: str = "default") -> str:
    return case(f"nn.{name}Cell", variant, "dynamic-quint8", backend="qnnpack")


def in_bfloat16(call: Call) -> Any:
    weight, bias = call["W_prepack"].unpack()
    packed = torch.ops.quantized.linear_prepack_fp16(weight.bfloat16().float(), bias)
    return call.original(W_prepack=packed)


def by_row(call: Call) -> Tensor:
    """A dynamic layer that computes qparams for each row."""
    return torch.cat([call.original(X=row) for row in torch.split(call.x, 1)])


def with_gates(order: tuple[int, ...]) -> Kernel:
    """A recurrent cell that reads the gates of its weights and biases in a wrong order."""

    def kernel(call: Call) -> Any:
        changed = {}
        for name in ("w_ih", "w_hh"):
            weight, bias = call[name].unpack()
            size = len(weight) // len(order)
            rows = torch.cat([torch.arange(gate * size, (gate + 1) * size) for gate in order])
            inner = with_codes(weight, weight.int_repr()[rows])
            changed[name] = torch.ops.quantized.linear_prepack(inner, None if bias is None else bias[rows].contiguous())
        return call.original(**changed)

    return kernel


def without_state(call: Call) -> Any:
    hx = call["hx"]
    return call.original(hx=torch.zeros_like(hx) if isinstance(hx, Tensor) else [torch.zeros_like(h) for h in hx])


def forgetful(call: Call) -> Any:
    """A recurrent layer that resets its state at every step."""
    steps = [call.original(input=step) for step in call["input"].split(1)]
    return torch.cat([step[0] for step in steps]), *steps[-1][1:]


def backward_forward(call: Call) -> Any:
    """A bidirectional layer that returns the outputs of the second direction in reverse."""
    output, *rest = call.original()
    first, second = output.chunk(2, -1)
    return torch.cat([first, second.flip(0)], -1), *rest


def _unquantized(call: Call) -> Tensor:
    weight, bias = call["W_prepack"].unpack()
    return F.linear(call.x, weight.dequantize(), bias)


fault = kernel_faults("layers")

FAULTS = [
    # dynamic layers
    fault(
        "dynamic: ReLU is lost",
        "accuracy numerics",
        "quantized.linear_relu_dynamic",
        lambda call: call.by(torch.ops.quantized.linear_dynamic),
        case("nn.Linear+nn.ReLU", dtypes="dynamic-quint8"),
    ),
    fault(
        "dynamic: the range is fixed",
        "accuracy numerics",
        "quantized.linear_dynamic",
        with_argument("X", lambda x: x.clamp(-1, 1)),
        DYNAMIC,
    ),
    fault(
        "dynamic: activations have 8 bits, not 7",
        "numerics",
        "quantized.linear_dynamic",
        with_argument("reduce_range", lambda reduce: not reduce),
        # sums of one product do not saturate, with VNNI or without
        case("nn.Linear", "single_feature", "dynamic-quint8"),
    ),
    fault(
        "dynamic: every row has its own qparams",
        "numerics",
        "quantized.linear_dynamic",
        by_row,
        DYNAMIC,
        case("nn.Linear", "wide", "dynamic-quint8", backend="qnnpack"),
    ),
    fault(
        "dynamic: activations are not quantized",
        "numerics",
        "quantized.linear_dynamic",
        lambda call: _unquantized(call),
        DYNAMIC,
        DYNAMIC.replace("exact", "typical"),
    ),
    fault(
        "dynamic: one value is a tenth of a step off",
        "numerics",
        "quantized.linear_dynamic",
        values(lambda y: y.index_put((torch.tensor(0), torch.tensor(0)), y[0, 0] + 2.0**-9)),
        DYNAMIC,
    ),
    fault(
        "float16: weights have 8 bits",
        "accuracy numerics",
        "quantized.linear_dynamic_fp16",
        in_bfloat16,
        HALF,
        HALF.replace("exact", "typical"),
    ),
    fault(
        "float16: the result is rounded to float16",
        "numerics",
        "quantized.linear_dynamic_fp16",
        values(lambda y: y.half().float()),
        HALF,
        HALF.replace("exact", "typical"),
    ),
    # embeddings
    fault(
        "rows of an embedding are one off",
        "accuracy numerics",
        "quantized.embedding_byte",
        with_argument("indices", lambda i: (i + 1) % 10),
        EMBEDDING,
    ),
    fault(
        "an embedding forgets its offsets",
        "accuracy numerics",
        "quantized.embedding_byte",
        values(lambda y: y - y.amin(-1, keepdim=True)),
        EMBEDDING,
    ),
    fault(
        "halves of bytes are exchanged",
        "accuracy numerics",
        "quantized.embedding_4bit",
        values(lambda y: y.reshape(*y.shape[:-1], -1, 2).flip(-1).flatten(-2)),
        case("nn.Embedding", dtypes="weight-quint4x2"),
    ),
    fault(
        "a bag loses its last row",
        "accuracy numerics",
        "quantized.embedding_bag_byte",
        lambda call: call.original(indices=call["indices"][:-1]),
        BAG,
    ),
    fault("bags are averaged", "accuracy numerics", "quantized.embedding_bag_byte", values(lambda y: y / 4), BAG),
    fault(
        "weights of samples are ignored",
        "accuracy numerics",
        "quantized.embedding_bag_byte",
        with_argument("per_sample_weights", lambda w: None),
        case("nn.EmbeddingBag", "sample_weights", "weight-quint8"),
    ),
    fault(
        "the last offset counts as a bag",
        "accuracy numerics",
        "quantized.embedding_bag_byte",
        with_argument("include_last_offset", lambda i: False),
        case("nn.EmbeddingBag", "last_offset", "weight-quint8"),
    ),
    # recurrent layers
    fault(
        "hidden and cell state are exchanged",
        "accuracy numerics",
        "aten.quantized_lstm",
        lambda call: (lambda y: (y[0], y[2], y[1]))(call.original()),
        LSTM,
    ),
    fault("the state is not carried from step to step", "accuracy numerics", "aten.quantized_lstm", forgetful, LSTM),
    fault(
        "the initial state is ignored",
        "accuracy numerics",
        "aten.quantized_lstm",
        without_state,
        case("nn.LSTM", "state", "dynamic-float16"),
    ),
    fault(
        "the second direction is reversed",
        "accuracy numerics",
        "aten.quantized_lstm",
        backward_forward,
        case("nn.LSTM", "bidirectional", "dynamic-float16"),
    ),
    fault(
        "gates of an LSTM are in another order",
        "numerics",
        "quantized.quantized_lstm_cell_dynamic",
        with_gates((0, 1, 3, 2)),
        cell("LSTM"),
    ),
    fault(
        "gates of a GRU are in another order",
        "accuracy numerics",
        "quantized.quantized_gru_cell_dynamic",
        with_gates((1, 0, 2)),
        cell("GRU"),
    ),
    fault(
        "a cell's state is ignored",
        "accuracy numerics",
        "quantized.quantized_gru_cell_dynamic",
        without_state,
        cell("GRU", "state"),
    ),
    fault(
        "an RNN has ReLU instead of tanh",
        "accuracy numerics",
        "quantized.quantized_rnn_tanh_cell_dynamic",
        lambda call: call.by(torch.ops.quantized.quantized_rnn_relu_cell_dynamic),
        cell("RNN"),
    ),
]

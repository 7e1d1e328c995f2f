"""What a call has to compute and to move at least, whatever computes it."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode


def of(call: Callable[[], Any], inputs: Sequence[Tensor], weight_bytes: int) -> tuple[int, int]:
    """Return the operations and the traffic of a call of a float model.

    Operations are the multiplications and additions of matrix products and convolutions, as torch counts them; other
    operators have none. Traffic is the bytes of the inputs, of the outputs, and of the weights that are read, as saved.
    """
    # oneDNN's recurrent layers are one operator, whose products torch does not count
    with torch.backends.mkldnn.flags(enabled=False), FlopCounterMode(display=False) as counter:
        outputs = call()
    tensors = [leaf for leaf in (*inputs, *tree_leaves(outputs)) if isinstance(leaf, Tensor)]
    return counter.get_total_flops(), weight_bytes + sum(x.numel() * x.element_size() for x in tensors)

"""Workflows of libraries such as torchao, which quantize modules in place, in the terms of a BackendConfig. Imports none.

A workflow declares which modules get weights of another type, on which grid, and what becomes of their inputs. With the dtype
of a module it is a claim, as a pattern with a dtype config is.
"""

import importlib
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.ao.quantization.backend_config import BackendConfig, BackendPatternConfig, DTypeConfig

from .codes import Codes

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
"""The dtypes of modules that torchao quantizes."""
MODULES = (nn.Linear, nn.Conv2d, nn.Embedding)
"""The classes of modules for which the suite has sizes, data and exact arithmetic."""


class Workflow(BackendPatternConfig):
    """What `quantize_` does by one config to the modules of a class.

    Attributes:
        name: how ids spell the config.
        source: an expression of the config.
        weight: the grid of weights.
        activation: the grid of inputs, which each call computes anew; None if they stay in float.
        fixed: the scale and zero point of inputs that are known before; None if each call computes them.
        needs: what the CPU lacks that the config asks for; empty if it runs there.
        sized: whether it looks at sizes before it asks for what it needs.
        dequantizes: whether the product is one of dequantized operands, in the dtype of the module.
        compiled: whether programs that are compiled have runs: of workflows that differ in their codes alone, one has.
        kernel: whether the kernel that inductor calls is run on layers of many sizes: of workflows with one kernel one is.
        packaged: whether its default layer is compiled ahead of time.
        codes_alone: whether another workflow differs from it in its codes alone, and has the runs that do not depend on them.
        packed: whether codes are stored as a kernel takes them, so that its product alone shows them.
    """

    def __init__(
        self,
        pattern: Any,
        name: str,
        source: str,
        weight: Codes,
        activation: Codes | None = None,
        *,
        fixed: tuple[float, int] | None = None,
        needs: str = "",
        sized: bool = True,
        dequantizes: bool = False,
        compiled: bool = True,
        kernel: bool = False,
        codes_alone: bool = False,
        packed: bool = False,
        dtypes: Iterable[torch.dtype] = DTYPES,
    ) -> None:
        super().__init__(pattern)
        self.name, self.source, self.weight, self.activation = name, source, weight, activation
        self.fixed, self.needs, self.sized, self.dequantizes = fixed, needs, sized, dequantizes
        self.compiled, self.kernel, self.packed = compiled and not needs, kernel, packed
        self.packaged, self.codes_alone = self.compiled, codes_alone
        self.set_dtype_configs(
            [
                DTypeConfig(dtype, dtype, torch.qint8, is_dynamic=activation is not None and fixed is None)
                for dtype in dtypes
            ]
        )

    @property
    def rounds(self) -> bool:
        """Whether operands are rounded before they are multiplied."""
        return self.dequantizes and not self.weight.is_exact

    @property
    def integers(self) -> bool:
        """Whether products are those of integers, by a kernel for them."""
        return not self.needs and (self.kernel or self.packed or (self.activation is not None and not self.dequantizes))

    def label(self, dtypes: DTypeConfig) -> str:
        """The part of an id that names the config and the dtype of the module."""
        return f"{self.name}-{str(dtypes.input_dtype).removeprefix('torch.')}"


class WorkflowConfig(BackendConfig):
    """What a library declares that quantizes modules in place: several workflows for one class of modules.

    Attributes:
        names: the module of each name in the expressions, and of `quantize_`, which is called with a module and a config.
        environment: the environment of tox that has the library, if one has.
        exports: whether `torch.export` takes what is quantized.
    """

    def __init__(
        self,
        name: str,
        names: Mapping[str, str],
        workflows: Iterable[Workflow],
        environment: str = "",
        *,
        exports: bool = False,
    ) -> None:
        super().__init__(name)
        self.names, self.workflows, self.environment, self.exports = names, [*workflows], environment, exports

    def namespace(self) -> dict[str, Any]:
        """The namespace of the expressions. Raises ImportError if the library is not installed."""
        named = {name: getattr(importlib.import_module(module), name) for name, module in self.names.items()}
        return {"torch": torch} | named

    @property
    def configs(self) -> list[BackendPatternConfig]:
        """The workflows."""
        return [*self.workflows]

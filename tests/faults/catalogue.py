"""The catalogue of all faults, with the ones that no check notices."""

from . import (
    arithmetic,
    codes,
    config_dtypes,
    config_modules,
    configs,
    contexts,
    convolutions,
    elementwise,
    engines,
    goldens,
    layers,
    ledgers,
    lowering,
    operators,
    oracles,
    row_files,
    stages,
)

KERNELS = (arithmetic, convolutions, layers, elementwise, operators, codes)
MODULES = (
    *KERNELS,
    contexts,
    engines,
    lowering,
    configs,
    config_dtypes,
    config_modules,
    stages,
    oracles,
    goldens,
    ledgers,
    row_files,
)
EVERY = [fault for module in MODULES for fault in module.FAULTS]
FAULTS = [fault for fault in EVERY if not fault.survives]
SURVIVORS = [fault for fault in EVERY if fault.survives]

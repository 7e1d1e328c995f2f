"""How a run differs from default use, in the terms of its operator."""

from .features import OPERANDS, arguments_of, features_of, stated_options
from .operators import Variant, has_weights
from .operators.variant import ALONE
from .runs import Run
from .variants import in_tables, variants

WORDS = {
    "called_twice": "called twice",
    "in_network": "behind another operator",
    "per_channel": "per-channel weights",
    "channels_last": "channels-last input",
    "strided": "strided input",
    "other_scale": "operands of other scales",
    "other_zero_point": "operands of other zero points",
    "keyword": "input by keyword",
    "two_layers": "two layers",
    "residual": "a residual",
    "scalar": "a scalar",
    "broadcast": "a broadcast operand",
    "batch0": "an empty batch",
    "operands of different shapes": "operands of different shapes",
    "operands of different ranks": "operands of different ranks",
    "saturates": "inputs beyond the calibration",
    "symmetric": "symmetric observers",
}
"""Features of variants in words."""


SIZES = frozenset(
    {
        "in_channels",
        "out_channels",
        "in_features",
        "out_features",
        "num_features",
        "num_channels",
        "num_parameters",
        "normalized_shape",
        "sizes",
        "steps",
        "rows",
        "form",
        "weight",
        "self",
    }
)
"""Arguments that follow from the shapes of a model and are no options, and factors that are no arguments."""


def form(run: Run) -> str:
    """The options of a run that default use does not state, then the features that set it apart. If it has neither, or other
    operators around it, the name of its variant. Empty for default use, and for runs of constraints."""
    if run.variant is None or run.constraint is not None:
        return ""
    (default, *_) = variants(run.claim)
    if run.variant == default:
        return ""
    if run.variant.context != ALONE or not in_tables(run.claim):
        return run.variant.name.replace("_", " ")
    operator, present = run.claim.root, features_of(run)
    usual = options(operator, default)
    stated = [f"{name}={value}" for name, value in options(operator, run.variant).items() if usual.get(name) != value]
    named = [words for name, words in WORDS.items() if name in present and not (name == "scalar" and stated)]
    return ", ".join((*stated, *named)) or run.variant.name.replace("_", " ")


def options(operator: str, variant: Variant) -> dict[str, str]:
    """The options that a variant states, as source text by name."""
    named = (arguments_of if has_weights(operator) else stated_options)(operator, variant)
    left_out = SIZES | OPERANDS
    return {name: repr(value) for name, value in named.items() if name not in left_out}

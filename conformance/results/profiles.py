"""The table of profiles: which data and observers a run has, and which checks it goes through."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

CHECK_MODULES = {
    "matched": "structure",
    "annotated": "annotation",
    "observed": "structure",
    "reference": "reference",
    "constraints": "reference",
    "lowered": "lowering",
    "numerics": "numerics",
    "accuracy": "numerics",
    "stable": "stability",
    "memory": "guarded",
    "asked": "lowering",
}
"""The table of checks: the module of `conformance/checks/` that has the function of this name. Rows keep this order."""

CHECKS = tuple(CHECK_MODULES)
"""Names of the checks, in order."""

OF_QUANTIZERS = {"matched": "annotated"}
"""The checks of a config that are others for what a quantizer declares: that its own entry takes effect."""

OF_WORKFLOWS = ("annotated", "lowered", "numerics", "stable")
"""The checks of what quantizes modules in place: which weights they get, that the program runs, its results, and that they
are the same from a saved state and in a copy."""

ASKED_FOR = ("memory",)
"""Checks that runs of core variants have, and other runs of cases if they are asked for."""

OF_MAPPINGS = ("asked",)
"""Checks of layers of networks, and of runs whose mapping leaves the pattern in float."""

OF_SOME_RUNS = (*ASKED_FOR, *OF_MAPPINGS)
"""Checks that some runs with a profile have: a row says whether its run has them."""


@dataclass(frozen=True)
class Profile:
    """Settings that all runs with this profile share.

    `kind` is `case` where outputs are compared with exact arithmetic, `property` where a property is tested that holds for
    any data, `network` where a layer of a network is compared with its reference. `data` are multiples of a power of two,
    normally distributed, or distributed as parameters and activations of networks before and after training. `mapping` is
    the qconfig mapping: one that makes arithmetic exact, one whose observers take the range of what they see, or the
    backend's default. `golden` says where the expected codes come from: the store, the oracle at run time, or nowhere.
    `variants` are those of a claim that get the profile without being drawn or timed.
    """

    name: str
    kind: Literal["case", "property", "network"] = "case"
    data: Literal["dyadic", "normal", "initialized", "trained"] = "dyadic"
    mapping: Literal["exact", "ranges", "default"] = "exact"
    checks: tuple[str, ...] = tuple(
        name for name in CHECK_MODULES if name not in (*OF_QUANTIZERS.values(), *OF_SOME_RUNS)
    )
    golden: Literal["stored", "computed", "none"] = "stored"
    variants: Literal["every", "default", "large", "swept", "in use", "pairs", "contexts", "none"] = "every"
    unasked: Literal["always", "core variants", "never"] = "core variants"
    """Which runs on engines that compile ahead of time are made without being selected by name."""
    needs_engine: bool = True
    """Whether a run is unavailable where its engine is."""
    by_features: bool = False
    """Whether entries of the ledger for runs that have the same features cover a run too, because it has too many of them."""
    further: int = 0
    """The number of further inputs, in other sizes, that a run's program is executed on and compared for."""
    degenerate: bool = False
    """Whether a run's program is executed on degenerate data, too."""
    threaded: bool = False
    """Whether a run's program is executed on its own inputs on several threads, too."""
    certain_only: bool = False
    """Whether outputs are not compared where the oracle is uncertain, because nobody chose the models by hand."""
    seconds: float = 0.03
    """Typical duration of a run: what it weighs when shards are balanced without the rows of earlier runs."""

    without_preparation: bool = False
    """Whether the checks of what a quantizer declares begin with the lowered model, because other profiles judge the prepared
    one. The stages before count as lowering."""

    @property
    def checks_of_quantizers(self) -> tuple[str, ...]:
        """The checks of what a quantizer declares."""
        first = self.checks.index("lowered") if self.without_preparation else 0
        return tuple(OF_QUANTIZERS.get(name, name) for name in self.checks[first:])

    @property
    def has_rows(self) -> bool:
        """Whether runs with this profile are collected as items with a row each."""
        return self.variants != "none"


EXACT = Profile("exact", degenerate=True)
TYPICAL = Profile(
    "typical", data="normal", mapping="default", golden="computed", variants="default", unasked="always", seconds=0.06
)
AGAINST_ORACLE = ("observed", "reference", "constraints", "lowered", "numerics")
"""Checks of layers in use. Whether an entry takes effect and a state_dict round trip changes anything does not depend on
sizes and parameters. Held to the codes of the oracle, a layer needs no floor of its SQNR, which depends on the distribution
of its parameters."""
IN_USE = Profile(
    "in_use",
    checks=AGAINST_ORACLE,
    golden="computed",
    variants="in use",
    unasked="never",
    by_features=True,
    further=1,
    degenerate=True,
    threaded=True,
    certain_only=True,
    seconds=0.015,
)
"""Layers of public networks, with dyadic data."""
INITIALIZED = replace(
    IN_USE, name="initialized", data="initialized", mapping="ranges", further=0, degenerate=False, threaded=False
)
"""Layers of public networks, with the parameters that torch's modules begin with."""
TRAINED = replace(INITIALIZED, name="trained", data="trained", threaded=True)
"""Layers of public networks, with parameters and activations distributed as in trained networks."""
CONSTRAINTS = Profile(
    "constraints",
    kind="property",
    checks=("observed", "constraints"),
    golden="none",
    variants="default",
    unasked="always",
    needs_engine=False,  # torch enforces constraints in prepare, whatever the engine
    seconds=0.06,
)
LAWS = Profile(
    "laws",
    kind="property",
    checks=("matched", "observed", "lowered", "stable"),
    golden="none",
    variants="large",
    unasked="never",
    seconds=0.1,
)
PAIRS = Profile(
    "pairs",
    checks=("lowered", "numerics"),
    golden="computed",
    variants="pairs",
    unasked="never",
    by_features=True,
    degenerate=True,
    certain_only=True,
    seconds=0.015,
)
"""Variants in which each pair of values of an operator's options occurs."""
CONTEXTS = replace(PAIRS, name="contexts", variants="contexts", further=1, degenerate=False, seconds=0.03)
"""Default variants among the operators that networks put around them."""
CODES = Profile(
    "codes",
    kind="property",
    checks=("matched", "observed", "lowered", "numerics", "stable"),
    golden="none",
    variants="swept",
    unasked="never",
    seconds=0.05,
    without_preparation=True,
)
"""Sweeps over every code of an operator's inputs, at many scales and zero points."""
GENERATED = Profile("generated", golden="computed", variants="none", unasked="never", further=4, certain_only=True)
"""Cases drawn at random."""
BENCH = Profile("bench", golden="computed", variants="none", unasked="never", certain_only=True)
"""Timed cases, whose shapes are those of layers of networks."""
NETWORK = Profile(
    "network",
    kind="network",
    data="normal",
    mapping="default",
    checks=("reference", "lowered", "numerics", "stable", *OF_MAPPINGS),
    golden="none",
    variants="none",
    unasked="never",
)
"""Layers of audited networks."""
PROFILES = {
    profile.name: profile
    for profile in (
        EXACT,
        TYPICAL,
        IN_USE,
        INITIALIZED,
        TRAINED,
        CONSTRAINTS,
        LAWS,
        CODES,
        PAIRS,
        CONTEXTS,
        GENERATED,
        BENCH,
        NETWORK,
    )
}
"""Profiles by the name that they have in ids."""


@cache
def profile_names(kind: Literal["case", "property", "network"]) -> tuple[str, ...]:
    """Names of the profiles of a kind whose runs have rows."""
    return tuple(one.name for one in PROFILES.values() if one.kind == kind and (one.has_rows or kind == "network"))

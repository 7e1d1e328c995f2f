"""Profiles of runs: which data and observers a run has, and which checks it goes through."""

CHECK_MODULES = {
    "matched": "structure",
    "observed": "structure",
    "reference": "reference",
    "constraints": "reference",
    "lowered": "lowering",
    "numerics": "numerics",
    "accuracy": "numerics",
    "stable": "stability",
}
"""The table of checks: the module of `conformance/checks/` that has the function of this name. Rows keep this order."""

CHECKS = tuple(CHECK_MODULES)
"""Names of the checks, in order."""


CHECKS_OF = {
    "exact": CHECKS,
    "typical": CHECKS,
    "constraints": ("observed", "constraints"),
    "laws": ("matched", "observed", "lowered", "stable"),
}
"""The checks that a run of each profile goes through."""


CASES = ("exact", "typical")
"""Profiles of runs that are held to exact arithmetic."""


GENERATED = "generated"
"""Profile of cases that are drawn at random. They are exact ones, without a stored golden and without a row."""


BENCH = "bench"
"""Profile of runs that are timed. They are exact ones, on the shapes of layers of networks, without a stored golden."""


ON_THE_SPOT = (GENERATED, BENCH)
"""Profiles whose goldens are computed where they are needed."""


PROPERTIES = ("constraints", "laws")
"""Profiles of runs that try what has to hold whatever the data are."""

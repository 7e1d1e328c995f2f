"""The APIs that quantize models, as far as cases depend on them: FX of torch.ao by a config, PT2E of torchao by a quantizer.

`models.apis` has what each does to a model, `repro.apis` the lines of a script that do the same.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from conformance.configs.engines import IN_PLACE
from conformance.configs.quantizer import QuantizerConfig, QuantizerSpec
from conformance.configs.workflows import WorkflowConfig
from conformance.oracle.scheme import Scheme
from conformance.results.profiles import OF_WORKFLOWS, Profile
from conformance.suggestions import unknown

from .claims import BackendClaims, Claim
from .operators import Variant
from .quantizers import declared_scheme, quantizer_recipe
from .recipes import Recipe, range_recipe, typical_recipe
from .sources import Model


class Fx:
    """FX traces modules, which take inputs of any shape, prepares them by a config, and enforces its constraints.

    Attributes:
        exports: whether models are exported: for inputs of one shape and format, and quantized by names of torchao.
        ways: how a quantizer can be configured for one module, or for those of one class; none for mappings of FX.
    """

    exports = False

    @property
    def ways(self) -> Collection[str]:
        return ()

    def checks(self, profile: Profile) -> tuple[str, ...]:
        """The names of the checks of a profile."""
        return profile.checks

    def recipe(self, claim: Claim, exact: Recipe, mapping: str, engine: str, way: str = "") -> Recipe:
        """The recipe of a mapping for a claim; `exact` is that with observers of powers of two, `way` that of a context."""
        if mapping == "default":
            return typical_recipe(claim.dtypes, exact, engine=engine)
        return range_recipe(claim.dtypes, exact) if mapping == "ranges" else exact

    def trains(self, variant: Variant) -> bool:
        """Whether a variant is prepared for training too, beside the main one."""
        return variant.core  # training has modules of its own

    def graph(self, model: Model) -> tuple[object, ...]:
        """What decides the graph of a model before it is quantized."""
        return (model.source,)

    def golden_mark(self, scheme: Scheme) -> str:
        """The end of the names of goldens that are not those of a config."""
        return ""

    def constructor_qconfig(self, recipe: Recipe) -> str:
        """Source of the QConfig that constructors of QAT modules take."""
        return recipe.qconfig


@dataclass(frozen=True)
class Pt2e(Fx):
    """PT2E exports models, and prepares them by a quantizer."""

    quantizer: QuantizerSpec
    exports = True

    @property
    def ways(self) -> Collection[str]:
        return self.quantizer.ways

    def checks(self, profile: Profile) -> tuple[str, ...]:
        return profile.checks_of_quantizers

    def recipe(self, claim: Claim, exact: Recipe, mapping: str, engine: str, way: str = "") -> Recipe:
        declared = replace(exact, scheme=declared_scheme(exact.scheme, claim))
        made = quantizer_recipe(self.quantizer, declared, claim.dtypes, mapping)
        if not way:
            return made
        module = f"torch.{claim.root}"
        return replace(made, mapping=self.quantizer.configured_by(way, "op", module))

    def trains(self, variant: Variant) -> bool:
        return variant.per_channel  # what training has of its own is how weights are fake-quantized

    def graph(self, model: Model) -> tuple[object, ...]:
        return model.source, *((name, spec.shape, spec.layout) for name, spec in model.operands)

    def golden_mark(self, scheme: Scheme) -> str:
        """Quantizers observe scalars as well; some bound no scale, or have weights of all codes beside signed activations."""
        grid = scheme.others or scheme.activation
        if grid is not None and grid.floor is None:
            return "-pt2e-unbounded"
        if grid is not None and grid.low < 0 and scheme.weight is not None and scheme.weight.low == grid.low:
            return "-pt2e-all-weights"
        return "-pt2e"

    def constructor_qconfig(self, recipe: Recipe) -> str:
        return "None"  # quantizers take no QAT modules


class InPlace(Fx):
    """`quantize_` of a library replaces the weights of modules, which are neither traced nor prepared."""

    def checks(self, profile: Profile) -> tuple[str, ...]:
        return OF_WORKFLOWS


def api(claims: BackendClaims) -> Fx:
    """The API that a backend's claims are about."""
    if isinstance(claims.config, WorkflowConfig):
        return InPlace()
    return Pt2e(claims.config.quantizer) if isinstance(claims.config, QuantizerConfig) else Fx()


def runs_on(claims: BackendClaims, engine: str) -> bool:
    """Whether an engine runs what a backend's claims are about: modules that are quantized in place, or converted models."""
    return (engine in IN_PLACE) == isinstance(claims.config, WorkflowConfig)


def engines_for(claims: BackendClaims, engines: Iterable[str]) -> tuple[str, ...]:
    """The engines that run a backend's claims: these, or without any those of the registry. Raises UsageError for others."""
    engines = tuple(engines)
    if others := [name for name in engines if not runs_on(claims, name)]:
        raise unknown("engine", others[0], claims.engines, f", which run what {claims.name} declares")
    return engines or claims.engines

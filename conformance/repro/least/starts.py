"""The candidates that a search begins with: the run's own model, with simple data or its own, and torch's own observers."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from torch import Tensor

from conformance.cases.apis import api
from conformance.cases.operators import Operand
from conformance.cases.recipes import Recipe, range_recipe, typical_recipe
from conformance.cases.runs import Run
from conformance.models.build import Subject
from conformance.results.profiles import EXACT

from .candidate import Candidate, Data, of_tensor

OBSERVED = "Observed("
"""The beginning of a quantizer whose observers are replaced, which takes a class that its package does not have."""
OWN = "PowerOfTwo"
"""The beginning of the names of observers that torch does not have."""


def recipes_of(run: Run) -> Iterator[Recipe]:
    """The recipes with torch's observers: the backend's default, then one whose observers take the range of what they see."""
    exact = replace(run, profile=EXACT.name).recipe
    if (quantization := api(run.backend)).exports:
        recipes = (quantization.recipe(run.claim, exact, mapping, run.engine) for mapping in ("default", "ranges"))
        yield from (recipe for recipe in recipes if OBSERVED not in recipe.mapping)
        return
    for recipe in (typical_recipe(run.claim.dtypes, exact, engine=run.engine), range_recipe(run.claim.dtypes, exact)):
        if OWN not in recipe.qconfig + recipe.mapping:
            yield recipe


def _simple(spec: Operand, tensor: Tensor) -> Data:
    """Data in even steps over the range of a tensor."""
    if tensor.is_floating_point() and tensor.numel():
        ends = float(tensor.min()), float(tensor.max())
        return Data("linspace", tuple(tensor.shape), spec.layout, *ends)
    return _own(spec, tensor)


def _own(spec: Operand, tensor: Tensor) -> Data:
    return of_tensor(tensor, spec.layout)


def starts(
    subject: Subject, recipes: Sequence[tuple[str, str]], data_matter: bool, *, threads: int, varies: bool
) -> Iterator[Candidate]:
    """Yield candidates, those that are easiest to read first.

    `recipes` are QConfigs and mappings. `data_matter` if the deviation depends on values; those of a model that `varies`
    depend on what new memory holds.
    """
    run = subject.run
    assert run.variant is not None
    specs = [spec for _, spec in run.model.operands]
    executed = [run.variant.executed_operand(name) for name, _ in run.model.operands]
    state = tuple((name, value.detach().clone()) for name, value in subject.model.state_dict().items())
    floats = tuple((name, value) for name, value in state if value.is_floating_point() and "fake_quant" not in name)
    writes = any("inplace=True" in line for line in run.model.init) or any("_(" in line for line in run.model.forward)
    plain = Candidate(
        run.model.init,
        run.model.forward,
        tuple(name for name, _ in run.model.operands),
        tuple(map(_simple, executed, subject.inputs)),
        "",
        "",
        clones=writes,
        threads=threads,
    )
    own = replace(
        plain,
        inputs=tuple(map(_own, executed, subject.inputs)),
        calibration=tuple(map(_own, specs, subject.calibration)),
        parameters=floats if floats else "own",
    )
    candidates = [plain]
    if any(one.shape != other.shape for one, other in zip(own.inputs, own.calibration or (), strict=True)):
        candidates.append(replace(plain, calibration=tuple(map(_simple, specs, subject.calibration))))
    if data_matter:
        candidates = [replace(one, parameters="linspace" if floats else "own") for one in candidates]
        candidates += [replace(own, calibration=None), own]
    for (number, (qconfig, mapping)), candidate in itertools.product(enumerate(recipes), candidates):
        for perturbed in (False, True) if data_matter else (False,):
            if perturbed or not varies:
                simpler = tuple(recipes[:number])
                yield replace(candidate, qconfig=qconfig, mapping=mapping, perturbed=perturbed, simpler=simpler)

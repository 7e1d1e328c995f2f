"""Scripts of findings about relations and constraints conform where torch does, and deviate where it lies."""

from conformance.properties.constraints.examples import Target
from conformance.properties.metamorphic import relations
from conformance.results.findings import Finding
from conformance.results.findings.constraints import (
    ConversionViolates,
    ConvertedViolation,
    IgnoredQConfigTrainsWeight,
    ObserverViolation,
    SatisfyingQConfigIgnored,
    SatisfyingQConfigWarned,
    ViolatingQConfigIgnored,
    ViolatingQConfigUsed,
    Violation,
)
from conformance.results.findings.relations import (
    RelationOutputs,
    RelationShape,
    RelationValues,
    RelationVaries,
    RelationWrites,
)
from conformance.results.findings.stages import Raises
from tests.property_scripts import executed, source
from tests.runs_by_id import run

CONV_RELU = "fbgemm/nn.Conv2d+nn.ReLU/static-quint8/ptq/large/laws@fbgemm"
EMBEDDING_BAG = "fbgemm/nn.EmbeddingBag/weight-quint8/ptq/large/laws@fbgemm"
ADD = "qnnpack/torch.add/static-qint8/ptq/input.scale_min_lower_bound/constraints@qnnpack"
LINEAR = "qnnpack/nn.Linear/static-qint8/qat/input.scale_min_lower_bound/constraints@qnnpack"
FUNCTION = "qnnpack/F.linear/static-qint8/ptq/weight.scale_min_lower_bound/constraints@qnnpack"

# Relations.


def test_a_script_evaluates_every_relation_and_conforms_where_they_hold() -> None:
    every = [RelationVaries("stable", name) for name in {relation.name: None for relation in relations.RELATIONS}]
    bags = [finding for finding in every if finding.relation not in (relations.RELU_APART, relations.CHANNELS_LAST)]
    raising = [Raises("stable", finding.relation, "RuntimeError", "") for finding in every]
    sources = source(CONV_RELU, *every), source(EMBEDDING_BAG, *bags), source(CONV_RELU, *raising)
    assert executed(*sources) == [["CONFORMS"]] * 3


def faulty(text: str, wrapped: str) -> str:
    """A script whose lowered model is called through a function of its outputs: `wrapped`, in terms of `y` and `calls`."""
    start = "with fresh_memory_holds(0x55):\n    first ="
    assert text.count(start) == 1
    lines = (
        "calls, honest = [], lowered\n"
        "def lowered(*given):\n"
        "    calls.append(given)\n"
        f"    y, = tensors(honest(*given))\n    return {wrapped}\n\n"
    )
    return text.replace(start, lines + start)


OTHER_VALUES = "y + len(calls)"
FAULTS: dict[Finding, str] = {
    **{
        RelationVaries("stable", name): OTHER_VALUES
        for name in (relations.SECOND_CALL, relations.ITEM_ALONE, relations.SPLIT_BATCH, relations.CHANNELS_LAST)
    },
    RelationValues("stable", relations.SECOND_THREAD, 0, 1, 2, (0,), 1.0, 0.0): OTHER_VALUES,
    RelationShape("stable", relations.SECOND_CALL, 0, (1,), (2,)): "y[: len(y) - len(calls) + 1]",
    RelationOutputs("stable", relations.SECOND_CALL, 2, 1): "[y] * len(calls)",
    RelationWrites("stable", relations.INPUTS_KEPT, (), (0,)): "(given[0].zero_(), y)[1]",
    Raises("stable", relations.SPLIT_BATCH, "RuntimeError", ""): "y if len(calls) == 1 else y.reshape(-1, 0)",
}


def test_a_script_deviates_where_torch_load_refuses_packed_weights() -> None:
    finding = Raises("stable", relations.TORCH_LOAD, "UnpicklingError", "Weights only load failed")
    (lines,) = executed(source("fbgemm/F.linear/static-quint8/ptq/large/laws@fbgemm", finding))
    assert [line.partition("(")[0] for line in lines] == ["DEVIATES stable: torch.load raises UnpicklingError"]


def test_each_kind_of_finding_about_relations_deviates_where_a_program_breaks_the_relation() -> None:
    sources = [faulty(source(CONV_RELU, finding), wrapped) for finding, wrapped in FAULTS.items()]
    for finding, lines in zip(FAULTS, executed(*sources), strict=True):
        name = finding.stage if isinstance(finding, Raises) else getattr(finding, "relation", "")
        assert lines, finding
        assert all(line.startswith(f"DEVIATES stable: {name}") for line in lines), (finding, lines)


# Constraints.


def qconfigs(name: str) -> tuple[str, str]:
    """A QConfig that satisfies every constraint, and one whose eps is below the least scale."""
    subject = run(name)
    assert subject.constraint is not None
    target = Target(subject.claim.dtypes, subject.constraint.side, subject.flow == "qat", 0)
    satisfying = target.qconfig(target.spec)
    violating = satisfying.replace("eps=0.000244140625", "eps=1e-07", 1)
    assert violating != satisfying
    return satisfying, violating


BROKEN = (ObserverViolation("scale_min_lower_bound", "eps", 1e-07, 2.0**-12),)
BELOW = Violation("scale_min_lower_bound", 1e-07, 2.0**-12)
ANY_SCALE_VIOLATES = Violation("scale_min_lower_bound", 1e-07, 1e30)


def test_each_kind_of_finding_about_constraints_conforms_where_torch_enforces_them() -> None:
    satisfying, violating = qconfigs(ADD)
    trained, _ = qconfigs(LINEAR)
    sources = [
        source(ADD, ViolatingQConfigUsed("observed", BROKEN, False, violating, None)),
        source(ADD, ViolatingQConfigIgnored("observed", BROKEN, violating)),
        source(ADD, SatisfyingQConfigIgnored("observed", satisfying)),
        source(ADD, SatisfyingQConfigWarned("observed", satisfying, None)),
        source(LINEAR, IgnoredQConfigTrainsWeight("observed", trained)),
        source(ADD, converted("input", BELOW, satisfying)),
        source(LINEAR, converted("weight", BELOW, trained, weights="w * 2")),
    ]
    assert executed(*sources) == [["CONFORMS"]] * len(sources)


def converted(tensor: str, violation: Violation, qconfig: str, weights: str = "") -> ConversionViolates:
    data = "" if weights else "torch.zeros(2)"
    return ConversionViolates("constraints", ConvertedViolation(tensor, violation, data, weights, ""), qconfig)


def test_each_kind_of_finding_about_constraints_deviates_where_torch_does_not_enforce_them() -> None:
    satisfying, violating = qconfigs(ADD)
    trained, ignored = qconfigs(LINEAR)
    silent, prepare = 'warnings.simplefilter("always")', "    prepared = prepare_fx("
    warned = source(ADD, SatisfyingQConfigWarned("observed", satisfying, None))
    unwarned = source(ADD, ViolatingQConfigIgnored("observed", BROKEN, violating))
    assert prepare in warned
    assert silent in unwarned
    sources = {
        "observed: eps": source(ADD, ViolatingQConfigUsed("observed", BROKEN, False, satisfying, None)),
        "observed: eps 1e-07": unwarned.replace(silent, 'warnings.simplefilter("ignore")'),
        "observed: satisfies": source(ADD, SatisfyingQConfigIgnored("observed", violating)),
        "observed: satisfies every": warned.replace(prepare, f'    warnings.warn("ignoring QConfig")\n{prepare}'),
        "observed: it is ignored": source(LINEAR, IgnoredQConfigTrainsWeight("observed", ignored)),
        "constraints: input": source(ADD, converted("input", ANY_SCALE_VIOLATES, satisfying)),
        "constraints: weight": source(LINEAR, converted("weight", ANY_SCALE_VIOLATES, trained, weights="w * 2")),
        "constraints: packed weight": source(
            FUNCTION, converted("packed weight", ANY_SCALE_VIOLATES, qconfigs(FUNCTION)[0], weights="w")
        ),
    }
    for sentence, lines in zip(sources, executed(*sources.values()), strict=True):
        assert len(lines) == 1, (sentence, lines)
        assert lines[0].startswith(f"DEVIATES {sentence}"), (sentence, lines)

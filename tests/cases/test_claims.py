"""Claims of a config have stable ids, and an invalid config is refused with one line."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.ao.quantization.backend_config import BackendConfig, BackendPatternConfig, DTypeConfig
from torch.ao.quantization.utils import MatchAllNode

from conformance.cases.claims import Claim, backend, claims_of, nested, third_parties, third_party
from conformance.cases.runs import runs
from conformance.cases.variants import not_covered
from conformance.configs import dtypes
from conformance.configs.registry import BACKENDS
from conformance.errors import UsageError


def config(*entries: BackendPatternConfig, name: str = "") -> BackendConfig:
    return BackendConfig(name).set_backend_pattern_configs(list(entries))


def test_there_is_a_claim_for_every_pattern_and_dtype_config_in_order() -> None:
    claims = claims_of(
        "mine",
        config(
            BackendPatternConfig(nn.Linear).set_dtype_configs([dtypes.STATIC_QUINT8_WEIGHTED, dtypes.DYNAMIC_FLOAT16]),
            BackendPatternConfig((nn.Linear, nn.ReLU)).set_dtype_configs([dtypes.STATIC_QUINT8_WEIGHTED]),
            BackendPatternConfig(nn.Embedding).set_dtype_configs([dtypes.WEIGHT_ONLY_QUINT4X2]),
        ),
    )
    assert [claim.id for claim in claims] == [
        "mine/nn.Linear/static-quint8",
        "mine/nn.Linear/dynamic-float16",
        "mine/nn.Linear+nn.ReLU/static-quint8",
        "mine/nn.Embedding/weight-quint4x2",
    ]
    assert [claim.dtypes for claim in claims[:2]] == [dtypes.STATIC_QUINT8_WEIGHTED, dtypes.DYNAMIC_FLOAT16]


def test_dtype_configs_that_share_a_name_are_numbered_from_the_second_on() -> None:
    float_output = DTypeConfig(input_dtype=torch.quint8, output_dtype=torch.float, weight_dtype=torch.qint8)
    third = DTypeConfig(input_dtype=torch.quint8, output_dtype=torch.quint8)
    several = [dtypes.STATIC_QUINT8_WEIGHTED, float_output, dtypes.DYNAMIC_QUINT8, third]
    linear, conv = BackendPatternConfig(nn.Linear), BackendPatternConfig(nn.Conv2d)
    claims = claims_of("mine", config(linear.set_dtype_configs(several), conv.set_dtype_configs(several[:1])))
    assert [claim.dtype_config for claim in claims] == [
        "static-quint8",
        "static-quint8-2",
        "dynamic-quint8",
        "static-quint8-3",
        "static-quint8",
    ]


@pytest.mark.parametrize(("name", "patterns", "claims"), [
    ("qnnpack", 190, 404), ("fbgemm", 192, 225), ("onednn", 221, 244), ("executorch", 84, 172),
])  # fmt: skip
def test_the_backends_make_as_many_claims_as_the_design_counts(name: str, patterns: int, claims: int) -> None:
    assert (backend(name).patterns, len(backend(name).claims)) == (patterns, claims)


@pytest.mark.parametrize("name", BACKENDS)
def test_the_ids_of_claims_are_unique(name: str) -> None:
    ids = [claim.id for claim in backend(name).claims]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("name", BACKENDS)
def test_claims_are_the_same_in_the_same_order_from_a_new_copy_of_the_config(name: str) -> None:
    again = claims_of(name, BACKENDS[name].factory())
    assert [claim.id for claim in again] == [claim.id for claim in backend(name).claims]


@pytest.mark.parametrize(
    "claim",
    [
        "fbgemm/nn.Conv2d+nn.ReLU/static-quint8",
        "onednn/operator.add(nn.BatchNorm2d(nn.Conv2d),*)/static-quint8",
        "qnnpack/nn.Linear/static-qint8",
        "fbgemm/nn.EmbeddingBag/weight-quint4x2",
        "fbgemm/Tensor.sigmoid_/static-quint8",
    ],
)
def test_ids_are_public_and_stay(claim: str) -> None:
    assert claim in [registered.id for registered in backend(claim.partition("/")[0]).claims]


@pytest.mark.parametrize(
    ("pattern", "tree"),
    [
        (nn.Conv2d, nn.Conv2d),
        ("relu", "relu"),
        ((nn.Conv2d, nn.ReLU), (nn.ReLU, nn.Conv2d)),
        ((nn.Conv2d, nn.BatchNorm2d, nn.ReLU), (nn.ReLU, (nn.BatchNorm2d, nn.Conv2d))),
        ((torch.add, nn.Conv2d, MatchAllNode), (torch.add, nn.Conv2d, MatchAllNode)),
        ((nn.ReLU, (torch.add, nn.Conv2d, MatchAllNode)), (nn.ReLU, (torch.add, nn.Conv2d, MatchAllNode))),
    ],
)
def test_a_pattern_in_nested_form_has_the_last_operator_first(pattern: object, tree: object) -> None:
    assert nested(pattern) == tree


def test_a_claims_tree_does_not_depend_on_the_format_of_its_entry() -> None:
    flat = BackendPatternConfig((nn.Conv2d, nn.ReLU))
    complex_format = BackendPatternConfig()._set_pattern_complex_format((nn.ReLU, nn.Conv2d))
    trees = [Claim("mine", "", "", entry, dtypes.STATIC_QUINT8).tree for entry in (flat, complex_format)]
    assert trees == [(nn.ReLU, nn.Conv2d)] * 2


@pytest.mark.parametrize(
    "pattern",
    [
        (nn.Conv1d, nn.BatchNorm1d, nn.ReLU),
        ((nn.BatchNorm1d, nn.Conv1d), nn.ReLU),  # a sequence whose first part is nested, as configs of torch 1 have it
    ],
)
def test_every_format_of_a_pattern_gives_the_same_claim(pattern: object) -> None:
    entry = BackendPatternConfig(pattern).set_dtype_configs([dtypes.STATIC_QUINT8_WEIGHTED])
    (claim,) = claims_of("mine", config(entry))
    assert claim.id == "mine/nn.Conv1d+nn.BatchNorm1d+nn.ReLU/static-quint8"
    assert claim.tree == (nn.ReLU, (nn.BatchNorm1d, nn.Conv1d))


def test_an_entry_that_torch_cannot_use_is_a_claim_that_is_not_covered() -> None:
    bad: list[tuple[BackendPatternConfig, str]] = [
        (BackendPatternConfig(nn.ReLU), "its dtype_configs are a DTypeConfig, not a list"),
        (BackendPatternConfig(nn.Tanh), "one of its dtype configs is a dict"),
        (BackendPatternConfig(nn.ELU), "one of its dtypes is 'quint8', which is no torch.dtype"),
        (BackendPatternConfig((nn.Linear, nn.ReLU())), "ReLU() is no module class, function or name of a method"),
    ]
    bad[0][0].dtype_configs = dtypes.STATIC_QUINT8_WEIGHTED  # type: ignore[assignment]
    bad[1][0].dtype_configs = [{}]  # type: ignore[list-item]
    bad[2][0].dtype_configs = [DTypeConfig("quint8", torch.quint8)]  # type: ignore[arg-type]
    for entry, reason in bad:
        (claim,) = claims_of("mine", config(entry))
        assert claim.dtype_config == "refused"
        assert not_covered(claim) == f"torch refuses the entry: {reason}"


def test_an_unknown_backend_is_refused_with_one_line_that_names_the_known_ones() -> None:
    with pytest.raises(UsageError) as raised:
        backend("tensorrt")
    assert str(raised.value) == (
        "unknown backend 'tensorrt': choose from qnnpack, fbgemm, onednn, executorch, xnnpack, x86inductor, "
        "arminductor, cortexm, tosa, torchao, "
        "or use --backend-config"
    )


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module of someone else's, in the folder where the suite is called."""
    path = tmp_path / "their_configs.py"
    path.write_text(
        "from torch import nn\n"
        "from torch.ao.quantization.backend_config import BackendConfig, BackendPatternConfig\n"
        "from conformance.configs.dtypes import STATIC_QUINT8_WEIGHTED\n"
        "NOT_CALLABLE = 7\n"
        "EMPTY = BackendConfig('empty')\n"
        "IDLE = BackendConfig('idle').set_backend_pattern_config(BackendPatternConfig(nn.ReLU))\n"
        "def theirs():\n"
        "    entry = BackendPatternConfig(nn.Linear).set_dtype_configs([STATIC_QUINT8_WEIGHTED])\n"
        "    return BackendConfig('their').set_backend_pattern_config(entry)\n"
        "def unnamed():\n    return BackendConfig().set_backend_pattern_config(theirs().configs[0])\n"
        "def taken():\n    return BackendConfig('fbgemm').set_backend_pattern_config(theirs().configs[0])\n"
        "CONFIG = theirs()\n"
        "bad = BackendPatternConfig(nn.ReLU)\n"
        "bad.dtype_configs = STATIC_QUINT8_WEIGHTED\n"
        "MIXED = BackendConfig('mixed').set_backend_pattern_configs([bad, *theirs().configs])\n"
        "class Registry:\n    config = theirs()\n"
        "def nothing():\n    return None\n"
        "def broken():\n    raise KeyError('lost')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "their_configs", raising=False)
    third_party.cache_clear()
    return path


def test_entries_that_torch_cannot_use_do_not_keep_the_others_from_running(module: Path) -> None:
    claims = third_party("their_configs:MIXED")
    assert [claim.id for claim in claims.claims] == ["mixed/nn.ReLU/refused", "mixed/nn.Linear/static-quint8"]
    assert [entry.pattern for entry in claims.config.configs] == [nn.Linear]
    scope: dict[str, BackendConfig] = {}
    sys.path.insert(0, "")
    try:
        exec(claims.source, scope)
    finally:
        sys.path.remove("")
    assert [entry.pattern for entry in scope["backend_config"].configs] == [nn.Linear]
    rows = [run.id for run in runs(claims) if run.profile == "exact"]
    assert rows[0] == "mixed/nn.ReLU/refused/ptq/not-covered/exact@x86"


@pytest.mark.parametrize("path", ["their_configs:theirs", "their_configs:Registry.config", "their_configs:CONFIG"])
def test_a_config_may_be_a_callable_an_object_or_an_attribute_of_one(path: str, module: Path) -> None:
    claims = third_party(path)
    assert [claim.id for claim in claims.claims] == ["their/nn.Linear/static-quint8"]


@pytest.mark.parametrize("name", ["a\0b", "a\nb", "a\x1b[31mb", "a\udc80b", "a\u202eb"])
def test_a_name_that_cannot_be_printed_is_refused(name: str, module: Path) -> None:
    module.write_text(module.read_text() + f"CONFIG.set_name({name!r})\n")
    with pytest.raises(UsageError) as raised:
        third_party("their_configs:CONFIG")
    assert str(raised.value) == (
        f"--backend-config 'their_configs:CONFIG': a claim is named {name + '/nn.Linear/static-quint8'!r}, which cannot be "
        "printed: name the config and its patterns without control characters, surrogates and invisible characters"
    )


def test_several_configs_have_names_of_their_own(module: Path) -> None:
    both = third_parties(["their_configs:theirs", "their_configs:MIXED"])
    assert [claims.name for claims in both] == ["their", "mixed"]
    with pytest.raises(UsageError, match="are both named their: run them one by one"):
        third_parties(["their_configs:theirs", "their_configs:CONFIG"])


def test_any_config_is_accepted_by_module_and_callable(module: Path) -> None:
    before = list(sys.path)
    config = third_party("their_configs:theirs")
    assert [claim.id for claim in config.claims] == ["their/nn.Linear/static-quint8"]
    assert config.engines == ("x86",)
    assert sys.path == before


@pytest.mark.parametrize(("path", "name"), [("their_configs:unnamed", "unnamed"), ("their_configs:taken", "taken")])
def test_a_config_without_a_name_of_its_own_is_named_after_its_function(path: str, name: str, module: Path) -> None:
    assert third_party(path).name == name


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("their_configs", "'their_configs': write it as module:attribute"),
        ("their_configs:", "'their_configs:': write it as module:attribute"),
        (":theirs", "':theirs': write it as module:attribute"),
        ("no_such_module:theirs", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("their_configs:other", "AttributeError: module 'their_configs' has no attribute 'other'"),
        ("their_configs:NOT_CALLABLE", "is of type int; it has to be a BackendConfig"),
        ("their_configs:nothing", "is of type NoneType; it has to be a BackendConfig"),
        ("their_configs:broken", "KeyError: 'lost'"),
        ("their_configs:EMPTY", "has no entries: there is nothing to run"),
        ("their_configs:IDLE", "promises nothing: none of its entries has a dtype config"),
    ],
)
def test_an_invalid_config_is_refused_with_one_line_that_gives_the_reason(
    path: str, message: str, module: Path
) -> None:
    before = list(sys.path)
    with pytest.raises(UsageError) as raised:
        third_party(path)
    assert str(raised.value).startswith(f"--backend-config {path!r}")
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    assert sys.path == before

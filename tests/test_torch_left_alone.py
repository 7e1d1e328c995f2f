"""The torch of a process that imports or calls this project stays as it is: only the suite's own children change theirs."""

import os
import subprocess
import sys

import pytest

SNAPSHOT = """
import copy, copyreg, gc, os, pickle, sys, warnings
import torch
import torch.ao.quantization.quantize_fx
import torch.nn.utils.parametrizations
# packages that filter warnings when they are imported
import hypothesis, numpy, scipy.stats

KINDS = {kind for kind in vars(torch._C).values() if isinstance(kind, type)} | {torch.Tensor}

def classes(modules):
    found = {value for module in modules for value in vars(module).values() if isinstance(value, type)} | KINDS
    return {kind for kind in found if str(getattr(kind, "__module__", "")).partition(".")[0] in ("torch", "copy", "pickle")}

def methods(kind):
    return {name: value for name, value in vars(kind).items() if name not in ("__doc__", "__abstractmethods__", "_abc_impl")}

NAMES = [name for name in sys.modules if name.partition(".")[0] in ("torch", "copy", "copyreg", "pickle")]
MODULES = [sys.modules[name] for name in NAMES]
CLASSES = classes(MODULES)

def snapshot():
    taken = {}
    for module in MODULES:
        taken |= {(module.__name__, name): value for name, value in vars(module).items() if callable(value)}
    for kind in CLASSES:
        # an attribute that is added counts too: torch looks whether a class has it
        taken |= {(f"{kind.__module__}.{kind.__qualname__}", name): value for name, value in methods(kind).items()
                  if callable(value) or isinstance(value, (classmethod, staticmethod, property))}
    taken |= {("copy._deepcopy_dispatch", kind): value for kind, value in copy._deepcopy_dispatch.items()}
    taken |= {("copyreg.dispatch_table", kind): value for kind, value in copyreg.dispatch_table.items()}
    return taken

def settings():
    return {
        "gc": (gc.get_threshold(), gc.isenabled(), gc.get_freeze_count()), "environment": dict(os.environ),
        "filters": list(warnings.filters), "threads": torch.get_num_threads(), "grad": torch.is_grad_enabled(),
        "engine": torch.backends.quantized.engine, "fx": {k: v for k, v in vars(torch.fx.config).items() if k[0] != "_"},
        "recursion": sys.getrecursionlimit(), "dtype": torch.get_default_dtype(),
    }

BEFORE, SETTINGS = snapshot(), settings()

def compare():
    after = snapshot()
    changed = sorted(str(key) for key, value in BEFORE.items() if after.get(key) is not value)
    extended = {f"{kind.__module__}.{kind.__qualname__}" for kind in CLASSES}
    extended |= {"copy._deepcopy_dispatch", "copyreg.dispatch_table"}
    added = sorted(str(key) for key in after.keys() - BEFORE.keys() if key[0] in extended)
    differ = {name: (value, settings()[name]) for name, value in SETTINGS.items() if settings()[name] != value}
    print("compared", len(BEFORE))
    assert not (changed or added or differ), (changed, added, differ)
"""

EVERY_MODULE = """
import importlib, pkgutil
import configs, conformance
imported, missing = [], {}
for package in (configs, conformance):
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if found.name.rpartition(".")[2] in ("__main__", "conftest") or ".test_" in found.name:
            continue
        try:
            importlib.import_module(found.name)
            imported.append(found.name)
        except ImportError as error:
            missing[found.name] = error.name
assert len(imported) > 200, len(imported)
assert {str(name).partition(".")[0] for name in missing.values()} <= {"executorch", "torchao"}, missing
"""

AUDITED = """
from torch import nn
from conformance.audit import audit
from torch.nn.utils.parametrizations import weight_norm
network = nn.Sequential(weight_norm(nn.Conv2d(3, 8, 3)), nn.ReLU()).eval()
copy.deepcopy(network)
audited = audit(network, [torch.rand(2, 3, 8, 8) for _ in range(3)], engine="fbgemm")
assert "Conv2d" in str(audited) and not audited.failure, audited  # torch quantizes the parametrized layer
"""

EXECUTED = """
from conformance.commands.runs import find
from conformance.execution.batch import judge_runs
from conformance.show import show
torch.set_num_threads(1)
SETTINGS["threads"] = 1
run = find("fbgemm/nn.Linear/static-quint8/ptq/default/exact@fbgemm")
(judged,) = judge_runs([run], lambda _: None)
assert judged.row.verdict == "conforms", judged
assert "checks" in "".join(show(run, []))
"""

FIXTURE = """
import pathlib, pytest, tempfile
with tempfile.TemporaryDirectory() as folder:
    (pathlib.Path(folder) / "conftest.py").write_text('pytest_plugins = ["conformance.plugin.auditing"]')
    (pathlib.Path(folder) / "test_mine.py").write_text('''
import copy, torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

def test_mine(audit):
    network = nn.Sequential(weight_norm(nn.Linear(4, 4)), nn.ReLU()).eval()
    copy.deepcopy(network)
    assert not audit(network, [torch.ones(2, 4), torch.zeros(2, 4)], "x86").blamed
''')
    assert pytest.main(["-q", "-p", "no:cacheprovider", folder]) == 0
"""


def ended(body: str) -> subprocess.CompletedProcess[str]:
    """Run a program between two snapshots in a fresh process."""
    text = f"{SNAPSHOT}\n{body}\ncompare()\n"
    # a pytest inside of this one takes it away
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    return subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "body",
    [EVERY_MODULE, AUDITED, EXECUTED, FIXTURE],
    ids=["imported", "audited", "judged and shown", "audited in a test"],
)
def test_torch_stays_as_it_is(body: str) -> None:
    process = ended(body)
    assert process.returncode == 0, process.stderr
    assert int(process.stdout.rpartition("compared ")[2]) > 10000


def test_a_replaced_method_and_an_added_one_are_noticed() -> None:
    body = """
for owner, name in ((torch.nn.Module, "__deepcopy__"), (torch.fx.Graph, "lint"), (torch, "relu")):
    before = vars(owner).get(name)
    setattr(owner, name, print)
    try:
        compare()
    except AssertionError as error:
        print("noticed", name in str(error))
    setattr(owner, name, before) if before else delattr(owner, name)
"""
    process = ended(body)
    assert process.stdout.splitlines().count("noticed True") == 3, process.stderr


def test_the_children_take_the_shortcuts() -> None:
    body = """
from conformance.host.isolation import run_isolated
from conformance.checks.judge import Judge
from conformance.commands.runs import find
from conformance.execution.batch import _judge
from torch import nn
torch.set_num_threads(1)
SETTINGS["threads"] = 1
def work(run):
    _judge(Judge(), {}, run)
    return hasattr(nn.Module, "__deepcopy__")
run = find("fbgemm/nn.Linear/static-quint8/ptq/default/exact@fbgemm")
print([outcome.value for outcome in run_isolated([run, run], work)], hasattr(nn.Module, "__deepcopy__"))
"""
    process = ended(body)
    assert process.stdout.splitlines()[0] == "[True, True] False", process.stderr

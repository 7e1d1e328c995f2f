"""Networks with trained weights: how their modules and weights are found, without what their packages import besides."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from conformance.errors import UsageError
from conformance.networks import trained
from conformance.networks.zoo import network


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package whose `__init__` imports what is not installed, with a module that asks another for a name."""
    folder = tmp_path / "shipped_network"
    (folder / "parts").mkdir(parents=True)
    for init in (folder / "__init__.py", folder / "parts" / "__init__.py"):
        init.write_text("import not_installed\n")
    (folder / "files.py").write_text("import not_installed\n")
    (folder / "parts" / "model.py").write_text("from shipped_network.files import read\nWIDTH = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("", ".files", ".parts", ".parts.model"):
        monkeypatch.delitem(sys.modules, f"shipped_network{name}", raising=False)
    return folder


def test_a_module_is_imported_without_what_its_package_imports(package: Path) -> None:
    with pytest.raises(ModuleNotFoundError):
        __import__("shipped_network.parts.model")
    module = trained._alone("shipped_network.parts.model", "shipped_network.files")
    assert (module.WIDTH, module.read) == (3, None)


def test_weights_are_read_from_the_folder_of_the_package(package: Path) -> None:
    torch.save({"module.weight": torch.ones(1, 2)}, package / "weights.pt")
    made = trained._loaded(
        torch.nn.Linear(2, 1, bias=False), trained._weights("shipped_network", "weights.pt"), "module."
    )
    assert made.state_dict()["weight"].tolist() == [[1.0, 1.0]]


def test_a_denoiser_computes_on_halves_of_an_image() -> None:
    layer = torch.nn.Conv2d(13, 12, 1, bias=False)
    torch.nn.init.eye_(layer.weight.view(12, 13))
    kept = trained.Denoiser(layer)
    image = torch.randn(1, 3, 4, 4)
    assert kept(image).equal(image)


@pytest.mark.skipif(find_spec("facenet_pytorch") is not None, reason="the package is installed")
def test_a_package_that_is_missing_is_named() -> None:
    with pytest.raises(
        UsageError, match=r"network pnet_trained needs the package facenet-pytorch, .* `tox -e networks`"
    ):
        network("pnet_trained").build()

"""A conformance suite for PyTorch's quantized backends: do they keep what their BackendConfig promises?"""

from pathlib import Path

__version__ = "0.1.0"

for _link in ("configs", "reports", "golden"):
    # git without support for symbolic links checks out a file with the path of the target
    if Path(__file__).with_name(_link).is_file():
        raise ImportError(
            f"conformance/{_link} has to be a symbolic link to ../{_link}, but is a file: run `git config core.symlinks "
            "true && git checkout -- conformance/configs conformance/reports conformance/golden`"
        )

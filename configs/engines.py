"""The table of backends and the engines held to the config of each. Imports no torch, so that reports can read it."""

ENGINES: dict[str, tuple[str, ...]] = {
    "qnnpack": ("qnnpack",),
    # x86 picks fbgemm's or oneDNN's kernels at run time and has no config of its own here.
    "fbgemm": ("fbgemm", "x86"),
    "onednn": ("onednn",),
    "executorch": ("executorch",),
}
"""Engines by backend. The config of a backend is `get_<name>_backend_config` in `configs/<name>.py`."""

"""The engines that run each backend's config. Does not import torch, so that reports can read it."""

ENGINES: dict[str, tuple[str, ...]] = {
    "qnnpack": ("qnnpack",),
    # x86 picks fbgemm's or oneDNN's kernels at run time and has no config of its own here.
    "fbgemm": ("fbgemm", "x86"),
    "onednn": ("onednn",),
    "executorch": ("executorch",),
}

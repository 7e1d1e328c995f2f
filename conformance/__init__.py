"""A conformance suite for PyTorch's quantized backends: are the promises of a BackendConfig kept?"""

__version__ = "0.1.0"

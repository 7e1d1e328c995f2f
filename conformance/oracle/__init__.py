"""The expected outputs of a quantized model in exact arithmetic, from the float model, its data and the scheme.

The oracle is independent of the code under test: nothing here imports torch.ao or calls a quantized operator. Of torch it
uses float64 operators only.
"""

from .arithmetic import Codes, Qparams
from .evaluate import Answer, evaluate
from .interpreter import NoCodes, NoQparams, NotCovered

__all__ = ["Answer", "Codes", "NoCodes", "NoQparams", "NotCovered", "Qparams", "evaluate"]

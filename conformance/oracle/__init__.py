"""What a quantized model has to give, from the float model, its data and the scheme, in exact arithmetic.

Independent of what it judges: nothing here imports torch.ao or calls a quantized operator. The one thing it takes from
torch is float64 operators.
"""

from .arithmetic import Codes, Qparams
from .evaluate import Answer, NotCovered, evaluate

__all__ = ["Answer", "Codes", "NotCovered", "Qparams", "evaluate"]

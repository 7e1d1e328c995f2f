"""Option spaces of the operators: the domain of every option, operand form, call style and class of sizes."""

from .elementwise import ELEMENTWISE
from .layers import LAYERS
from .pooling import POOLING
from .space import Factor, Point, Space
from .views import VIEWS
from .weighted import WEIGHTED

SPACES: dict[str, Space] = {**WEIGHTED, **ELEMENTWISE, **POOLING, **VIEWS, **LAYERS}
"""Option spaces by operator. A fused or QAT module has that of the layer inside it."""

__all__ = ["SPACES", "Factor", "Point", "Space"]

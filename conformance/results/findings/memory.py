"""Findings about accesses outside of the memory of tensors."""

from .finding import Finding


class OutOfBounds(Finding, kind="out-of-bounds"):
    """A kernel `reads` or `writes` `before` or `beyond` an allocation of so many bytes, or after it is `freed`.

    It is None outside of operator calls, as where weights are packed.
    """

    kernel: str | None
    access: str
    side: str
    bytes: int

    @property
    def text(self) -> str:
        where = f"{self.side} a tensor of {self.bytes} bytes"
        if self.side == "freed":
            where = f"a tensor of {self.bytes} bytes that is freed"
        return f"{self.kernel or 'code outside of operators'} {self.access} {where}"

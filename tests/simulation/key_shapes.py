"""Unique keys as clients write them: 32 upper-case digits, Go's with digits in lower case, other text.

Some keys are another message's in other case. Whoever folds case takes the two for one.
"""

from __future__ import annotations

from tests.simulation.kernel import Kernel


class KeyShapes:
    """Makes the keys of one history."""

    def __init__(self, kernel: Kernel, *, share_of_text: float) -> None:
        self._kernel = kernel
        self._share_of_text = share_of_text
        #: Keys of Go's shape that no key in other case was made of.
        self._without_twin: list[str] = []

    def next_key(self) -> str:
        """A key that no message has."""
        digits = f"{self._kernel.dice.getrandbits(128):032X}"
        if not self._share_of_text or self._kernel.dice.random() >= self._share_of_text:
            return digits
        return self._text(digits)

    def _text(self, digits: str) -> str:
        shape = self._kernel.any_of(4)
        if shape == 0 and self._without_twin:
            return self._without_twin.pop().upper()
        self._kernel.saw("key of text", digits[-4:])
        if shape == 1:
            return f"order_{digits[:8]}-{digits[8:20].lower()}"
        key = digits[:20] + digits[20:].lower()
        if not digits[20:].isdecimal():
            self._without_twin.append(key)
        return key

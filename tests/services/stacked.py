"""What several services that live together have in common: they start one after the other and end in reverse."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Self


class Stacked:
    """A with block around `_start`; what was put on `_stack` ends with the block, also when `_start` fails half way."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    def _start(self) -> None:
        """Puts everything on the stack as soon as it has to be ended."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

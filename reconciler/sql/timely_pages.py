"""Reads many rows page by page, in pieces that are small enough for a statement's deadline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from reconciler.errors import StatementTooSlow

#: A piece whose statement takes too long is halved this often before the page is given up.
HALVINGS_MAX = 4

Row = TypeVar("Row")
Place = TypeVar("Place")


class TimelyPages:
    """Knows how many rows one database reads in time. Shared by threads, because it keeps only that number.

    A piece that was too slow is read in halves. Later pages begin with that number of rows, which each page doubles.
    """

    def __init__(self) -> None:
        #: Maximum number of rows of one statement; None as long as no statement was too slow.
        self._rows_max: int | None = None

    def read(
        self,
        limit: int,
        after: Place | None,
        read: Callable[[Place | None, int], Sequence[Row]],
        *,
        place_of: Callable[[Row], Place],
    ) -> list[Row]:
        """Returns the next rows after a place; fewer than `limit` only if there are no more.

        `read` returns that number of rows after a place, in order. Raises what `read` raises, but StatementTooSlow only
        after HALVINGS_MAX halvings or for a single row.
        """
        found: list[Row] = []
        halvings = 0
        while len(found) < limit:
            rows = min(limit - len(found), self._rows_max or limit)
            try:
                piece = read(after, rows)
            except StatementTooSlow:
                self._rows_max = max(1, rows // 2)
                halvings += 1
                if rows > 1 and halvings <= HALVINGS_MAX:
                    continue
                raise
            found += piece
            if len(piece) < rows:
                break
            after = place_of(piece[-1])
        if not halvings and self._rows_max is not None:
            self._rows_max = None if self._rows_max >= limit else self._rows_max * 2
        return found

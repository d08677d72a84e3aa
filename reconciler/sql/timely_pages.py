"""Reads pages of a walk over many rows in pieces small enough for a statement's deadline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from reconciler.errors import StatementTooSlow

#: A piece that the database ended because of its time is halved so often before the page is given up.
HALVINGS_MAX = 4

Row = TypeVar("Row")
Place = TypeVar("Place")


class TimelyPages:
    """Knows how many rows one database reads in time. Shared by threads, because that number is all that it keeps.

    After a piece was too slow it is read in halves; later pages begin with as few rows and double them each time.
    """

    def __init__(self) -> None:
        #: Rows of one statement; None: no statement was too slow.
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

        `read`: returns so many rows after a place, in order. Raises what `read` raises; StatementTooSlow only for a
        piece that was halved HALVINGS_MAX times, or for a single row.
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

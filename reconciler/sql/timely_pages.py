"""Pages of a walk over many rows, in pieces that a database reads in the time that a statement has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from reconciler.errors import StatementTooSlow

#: How often a piece is halved that the database ended for its time, until the page is given up.
HALVINGS_MAX = 4

Row = TypeVar("Row")
Place = TypeVar("Place")


class TimelyPages:
    """How many rows one database reads in time. Shared by threads: beside that number it keeps nothing.

    A page that was too slow is read in halves; later pages begin with as few rows, then with twice as many each time.
    """

    def __init__(self) -> None:
        #: Rows of a statement; None: no statement was too slow.
        self._rows_max: int | None = None

    def read(
        self,
        limit: int,
        after: Place | None,
        read: Callable[[Place | None, int], Sequence[Row]],
        *,
        place_of: Callable[[Row], Place],
    ) -> list[Row]:
        """The next rows behind a place, fewer than `limit` only where there are no more.

        `read`: that many rows behind a place, in order. Raises what it raises; StatementTooSlow only for a piece that
        was halved HALVINGS_MAX times, or for a single row.
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

"""Engines of a test's own: their connections are closed at the end, also of a test that fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from reconciler.contract.secret import Secret
from reconciler.sql.engines import open_engine, writing

__all__ = ["begun", "disposed", "make_tables", "with_tables"]


@contextmanager
def disposed(engine: sa.Engine) -> Iterator[sa.Engine]:
    """Closes its connections at the end."""
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def begun(url: Secret) -> Iterator[sa.Connection]:
    """One transaction, committed at the end, on an engine that nothing else uses. Raises our errors."""
    with disposed(open_engine(url)) as engine, writing(engine) as connection:
        yield connection


@contextmanager
def with_tables(url: Secret, *metadata: sa.MetaData) -> Iterator[sa.Engine]:
    """An engine on a database that has these tables."""
    with disposed(open_engine(url)) as engine:
        for one in metadata:
            one.create_all(engine)
        yield engine


def make_tables(url: Secret, *metadata: sa.MetaData) -> None:
    """Makes those of these tables that are not there."""
    with with_tables(url, *metadata):
        pass

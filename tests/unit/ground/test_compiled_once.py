"""Engines share what they have compiled, unless their servers or settings make another statement of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from reconciler.sql.engines import open_engine
from tests.compiled_once import alike

POSTGRESQL = "postgresql+psycopg://nobody@127.0.0.1/none"


def test_a_second_engine_compiles_nothing_of_what_the_first_one_has_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[str] = []
    plain = sa.sql.Select._compiler

    def compile_(statement: Any, *arguments: Any, **more: Any) -> Any:
        compiled.append(str(tmp_path))
        return plain(statement, *arguments, **more)

    monkeypatch.setattr(sa.sql.Select, "_compiler", compile_)
    for name in ("first", "second"):
        engine = open_engine(f"sqlite:///{tmp_path}/{name}.db")
        with engine.connect() as connection:
            named = sa.literal(name).label(tmp_path.name)
            assert connection.execute(sa.select(named)).scalar_one() == name
        engine.dispose()
    assert len(compiled) == 1


@pytest.mark.parametrize(
    ("name", "value"), [("server_version_info", (9, 0)), ("_json_serializer", str), ("_later_attribute", object())]
)
def test_dialects_that_differ_share_nothing(name: str, value: object) -> None:
    one, other = (sa.create_engine(POSTGRESQL).dialect for _ in range(2))
    assert alike(one) == alike(other)
    setattr(other, name, value)
    assert alike(one) != alike(other)


def test_another_driver_is_another_dialect() -> None:
    assert alike(sa.create_engine(POSTGRESQL).dialect) != alike(sa.create_engine("sqlite://").dialect)

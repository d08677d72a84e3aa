"""A password of MySQL or MariaDB that is no ASCII text goes to the server in UTF-8, as other clients send it."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from reconciler.contract.secret import SecretText
from reconciler.sql.engines import open_engine


class Refused(Exception):
    pass


@pytest.mark.parametrize("is_secret", [False, True])
def test_each_password_is_sent_as_utf_8(monkeypatch: pytest.MonkeyPatch, *, is_secret: bool) -> None:
    password = "pä ss@%/:中#😀"
    text = f"mysql+pymysql://shop:{quote(password, safe='')}@127.0.0.1:1/orders"
    engine = open_engine(SecretText(text) if is_secret else text)
    sent: list[Any] = []

    def connect(*_: object, **parameters: object) -> None:
        sent.append(parameters["password"])
        raise Refused

    monkeypatch.setattr(engine.dialect.loaded_dbapi, "connect", connect)
    with pytest.raises(Refused):
        engine.connect()
    assert sent == [password.encode()]
    engine.dispose()

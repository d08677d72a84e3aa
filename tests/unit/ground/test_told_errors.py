"""An error of a service's code is told to people of other rooms: without its secrets, and otherwise as it is."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from reconciler.errors import TOLD_CHARACTERS_MAX, told_error, told_value
from reconciler.rocketmq.consumer.listener import call_listener
from reconciler.rocketmq.producer.transaction_listener import asked

#: What hostile texts are made of: parts of names, separators, quotes and long runs.
PIECES = (
    "://", ":", "@", "/", "password", "pwd=", "token", "api_key", "secret_access_key", ": ", "=", "'", '"', "\\", "\\'",
    " ", "Bearer ", "a:", ",a:", "@tcp(", "@h:", "\t", "é", ",", "--", "IDENTIFIED BY '", "[", "x" * 50, " " * 50,
)  # fmt: skip


@pytest.mark.parametrize(
    ("said", "told"),
    [
        # URLs
        ("no way to https://shop:s3cret-word@pay/v1?a=b", "no way to https://***@pay/v1?a=b"),
        ("amqp://a:s3,cret'word@mq refused", "amqp://***@mq refused"),
        ("amqp://shop:p@s3cret@mq/orders refused", "amqp://***@mq/orders refused"),
        ("amqp://shop:p/s3cret@mq/orders refused", "amqp://***@mq/orders refused"),
        ("redis://:s3cret@cache:6379/0", "redis://***@cache:6379/0"),
        # addresses without a scheme
        ("dial shop:s3cret@tcp(db:3306)/shop: timeout", "dial ***@tcp(db:3306)/shop: timeout"),
        ("dial 'shop:s3@/cret@tcp(db:3306)/shop'", "dial '***@tcp(db:3306)/shop'"),
        ("shop:s3cret@unix(/run/mysql.sock)/shop", "***@unix(/run/mysql.sock)/shop"),
        ("cannot reach shop:s3cret@db:5432", "cannot reach ***@db:5432"),
        # names with an equals sign
        ("connect(host=db password=s3cret-word sslmode=require)", "connect(host=db password=*** sslmode=require)"),
        ("connect(host='db', password='two s3cret words')", "connect(host='db', password='***')"),
        ('Server=db;Password="two s3cret words";Timeout=3', 'Server=db;Password="***";Timeout=3'),
        ("password = 'it\\'s s3cret' refused", "password = '***' refused"),
        ("password='s3cret and no end", "password='***"),
        ("POST /pay?api_key=p&id=1 gave 401", "POST /pay?api_key=***&id=1 gave 401"),
        ("aws_secret_access_key=s3cret/+x region=eu", "aws_secret_access_key=*** region=eu"),
        ("AccountName=shop;AccountKey=s3cret==;Suffix=x", "AccountName=shop;AccountKey=***;Suffix=x"),
        # names with a colon
        ("login failed, password: s3cret", "login failed, password: ***"),
        ("{password: s3cret, user: shop}", "{password: ***, user: shop}"),
        ("refused X-Api-Key: s3cret", "refused X-Api-Key: ***"),
        ("X-Auth-Token: s3cret, Accept: text/plain", "X-Auth-Token: ***, Accept: text/plain"),
        ("Authorization: s3cret", "Authorization: ***"),
        ("Authorization: Basic czNjcmV0", "Authorization: Basic ***"),
        ("refused {'Authorization': 'Bearer s3cret-word'}", "refused {'Authorization': '***'}"),
        ('{"access_token": "s3cret-word", "id": 1}', '{"access_token": "***", "id": 1}'),
        ('{"token": "s3cret", "id": 1}', '{"token": "***", "id": 1}'),
        ('"{\\"password\\": \\"two s3cret words\\", \\"id\\": 1}"', '"{\\"password\\": \\"***\\", \\"id\\": 1}"'),
        ("sent Bearer s3cret-word", "sent Bearer ***"),
        # SQL
        ("near CREATE ROLE shop PASSWORD 's3cret word'", "near CREATE ROLE shop PASSWORD '***'"),
        ("CREATE USER shop IDENTIFIED BY 's3cret'", "CREATE USER shop IDENTIFIED BY '***'"),
    ],
)
def test_a_secret_of_a_known_form_is_hidden(said: str, told: str) -> None:
    assert told_error(ValueError(said)) == f"ValueError: {told}"


@pytest.mark.parametrize(
    "said",
    [
        "token expired; no password for shop@pay",
        "(1045, \"Access denied for user 'shop'@'10.0.0.1' (using password: YES)\")",
        'FATAL:  password authentication failed for user "shop"',
        "unexpected token: FROM",
        "the password is missing; password: required",
        "password must have 8 characters",
        "Basic authentication failed",
        "Bearer token is invalid",
        'secret "billing-db" not found',
        "no primary key: id",
        "GET http://pay:8443/v1/orders?mail=1 gave 500: mail to ops@shop.example",
        "http://pay:8443/users/@me gave 404",
        "git+https://host/@scope/package@1.2",
        "10.0.0.1@4711#1234 is not in group billing",
        "at 2026-01-01T10:00:00 the pool (size=5, max_tokens=80, key=order-7) was empty",
        "<urlopen error [Errno 111] Connection refused>",
        "order:7@warehouse is sold",
        "duplicate key value violates unique constraint: Key (number)=(7)",
    ],
)
def test_an_ordinary_text_stays(said: str) -> None:
    assert told_error(ValueError(said)) == f"ValueError: {said}"


def test_what_a_listener_says_leaves_the_process_without_secrets() -> None:
    """Its error and its wrong answer become remarks, which brokers pass on."""

    def answering(*_: object) -> Any:
        return {"password": "s3cret"}

    def failing(*_: object) -> Any:
        raise ValueError("password: s3cret")

    assert call_listener(answering, []).remark == "answered {'password': '***'}"
    assert call_listener(failing, []).remark == "ValueError: password: ***"
    assert asked(answering, "check")[1] == "check answered {'password': '***'}"
    assert asked(failing, "check")[1] == "check raised ValueError: password: ***"


def test_an_answer_in_place_of_a_state_is_told_like_an_error() -> None:
    assert told_value({"password": "s3cret"}) == "{'password': '***'}"
    assert len(told_value("x" * 10_000)) == TOLD_CHARACTERS_MAX + len("...")


def test_a_hostile_text_costs_milliseconds() -> None:
    """A failed match may not try a text again and again: services repeat texts of strangers in their errors."""
    drawn = random.Random(7)
    repeated = [piece + other for piece in PIECES for other in PIECES]
    mixed = ["".join(drawn.choices(PIECES, k=5)) for _ in range(100)]

    def seconds_of(text: str) -> float:
        began = time.thread_time()
        told_error(ValueError(text))
        return time.thread_time() - began

    for piece in (*repeated, *mixed):
        text = (piece * (10_000 // len(piece) + 1))[:10_000]
        # The second time: a collector of garbage may have been at work.
        assert seconds_of(text) < 0.2 or seconds_of(text) < 0.2, text[:20]
    for piece in ("://a:", ",a:", "password='", "a"):
        assert seconds_of(piece * (1_000_000 // len(piece))) < 2

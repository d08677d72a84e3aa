"""Settings: every problem at once, nothing unknown is ignored, the commented file and the model never drift apart."""

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from reconciler.errors import ConfigurationError
from reconciler.settings.file import load_settings, settings_path
from reconciler.settings.schema import Settings

EXAMPLE = Path("config/reconciler.toml")


def test_commented_example_is_accepted_as_it_is() -> None:
    assert load_settings(EXAMPLE, {}).environment == "production"


def _section_of(info: FieldInfo) -> type[BaseModel] | None:
    kinds = (info.annotation, *getattr(info.annotation, "__args__", ()))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def _leaves(model: type[BaseModel], prefix: str = "") -> dict[str, object]:
    found: dict[str, object] = {}
    for name, info in model.model_fields.items():
        section = _section_of(info)
        if section is not None:
            found |= _leaves(section, f"{prefix}{name}.")
        else:
            found[prefix + name] = (
                info.get_default(call_default_factory=True)
                if info.default_factory or info.default is not PydanticUndefined
                else PydanticUndefined
            )
    return found


def _documented() -> dict[str, object]:
    """Settings of the example, also those in comments (`# name = value`, `# [[list]]`)."""
    text = re.sub(r"^# (\w+ = .+|\[\[\w+\]\])$", r"\1", EXAMPLE.read_text(), flags=re.MULTILINE)
    return dict(_flat(tomllib.loads(text), ""))


def _flat(table: dict[str, Any], prefix: str) -> Iterator[tuple[str, object]]:
    for name, value in table.items():
        entry = value[0] if isinstance(value, list) and value else value
        if isinstance(entry, dict) and entry:
            yield from _flat(entry, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def test_every_setting_is_documented_and_every_documented_one_exists() -> None:
    assert set(_documented()) == set(_leaves(Settings))


def test_documented_defaults_are_the_defaults() -> None:
    documented = _documented()
    wrong = {
        name: (documented[name], default)
        for name, default in _leaves(Settings).items()
        if default is not PydanticUndefined and default is not None and documented[name] != default
    }
    assert not wrong


def _sections(model: type[BaseModel], name: str = "settings") -> Iterator[tuple[str, type[BaseModel]]]:
    yield name, model
    for field, info in model.model_fields.items():
        if (section := _section_of(info)) is not None:
            yield from _sections(section, field)


def _sections_in(value: ast.expr, bound: Mapping[str, set[str]]) -> set[str]:
    """Classes of the sections that an expression may be: `settings.rounds`, a name, one of a list."""
    match value:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return bound.get(name, set())
        case ast.Subscript(value=inner) | ast.ListComp(generators=[ast.comprehension(iter=inner)]):
            return _sections_in(inner, bound)
        case _:
            return set()


def _read_of_sections(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Class of a section -> what is read of it, by names alone."""
    classes = {of.__name__: name for name, of in _sections(Settings)}
    bound = defaultdict(set, {name: {of} for of, name in classes.items()})
    nodes = list(ast.walk(tree))
    for node in nodes:
        match node:
            case ast.arg(arg=name, annotation=ast.expr() as said):
                bound[name] |= {n.id for n in ast.walk(said) if isinstance(n, ast.Name) and n.id in classes}
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.For(target=ast.Name(id=name), iter=value)
                | ast.comprehension(target=ast.Name(id=name), iter=value)
            ):
                bound[name] |= _sections_in(value, bound)
    for node in nodes:
        if isinstance(node, ast.Attribute):
            yield from ((section, node.attr) for section in _sections_in(node.value, bound))


def _read_by_itself(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """What a section makes of its fields; that a validator looks at one makes nothing of it."""
    for section in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        for made in (node for node in section.body if isinstance(node, ast.FunctionDef)):
            if not any("validator" in ast.unparse(decorator) for decorator in made.decorator_list):
                yield from ((section.name, n.attr) for n in ast.walk(made) if isinstance(n, ast.Attribute))


def test_every_setting_is_read_by_what_it_is_for() -> None:
    rooms = dict.fromkeys(("cli", "commands", "web", "wiring"), _read_of_sections) | {"settings": _read_by_itself}
    files = [(read, path) for room, read in rooms.items() for path in Path("reconciler", room).rglob("*.py")]
    found = {pair for read, path in files for pair in read(ast.parse(path.read_text()))}
    unread = {
        (of.__name__, name)
        for _, of in _sections(Settings)
        for name, info in of.model_fields.items()
        if _section_of(info) is None
    } - found
    # The audit alone is about what is late, and reads the file with code of its own.
    assert unread == {("SubscriptionSettings", "late_after_seconds")}


def problems_of(environ: dict[str, str]) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(EXAMPLE, environ)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_all_problems_are_named_at_once_with_field_value_and_remedy() -> None:
    text = problems_of(
        {
            "RECONCILER_REDIS__URLX": "a",
            "RECONCILER_ROCKETMQ__NAME_SERVERS": "nowhere",
            "RECONCILER_REDIS__URL": "ftp://x",
            "RECONCILER_ROUNDS__INTERVAL_SECONDS": "soon",
            "RECONCILER_TYPO": "1",
            "RECONCILER_LEDGER__URL": "sqlite://",
        }
    )
    for part in (
        "redis.urlx: unknown",
        "'nowhere'",
        "redis+cluster://",
        "interval_seconds = 'soon'",
        "typo",
        "absolute",
    ):
        assert part in text
    assert "6 problem(s)" in text


def test_wrong_value_of_a_variable_names_the_variable_for_nobody_finds_it_in_the_file() -> None:
    text = problems_of(
        {"RECONCILER_FOO": "1", "RECONCILER_ROUNDS__INTERVAL_SECONDS": "soon", "RECONCILER_LEDGER": "{}"}
    )
    for line in (
        "RECONCILER_FOO: foo: unknown setting",
        "RECONCILER_ROUNDS__INTERVAL_SECONDS: rounds.interval_seconds = 'soon'",
        "RECONCILER_LEDGER: ledger.url: missing",
    ):
        assert f"\n  {line}" in text


@pytest.mark.parametrize(
    ("environ", "part"),
    [
        ({"RECONCILER_SUBSCRIPTIONS__0__TOPIC": "OTHER"}, "no producer sends it"),
        ({"RECONCILER_SUBSCRIPTIONS__0__GRACE_PERIOD_SECONDS": "1"}, "shorter than rounds.interval_seconds"),
        ({"RECONCILER_SUBSCRIPTIONS__0__LATE_AFTER_SECONDS": "3"}, "late_after_seconds"),
        ({"RECONCILER_SUBSCRIPTIONS__0__INBOX_KEEP_DAYS": "9.9"}, "take effect twice"),
        ({"RECONCILER_SUBSCRIPTIONS__0__REPAIR_ORDER": '["end","end"]'}, "is listed twice"),
        ({"RECONCILER_SUBSCRIPTIONS__0__REPAIR_ORDER": '["pray"]'}, "repair_order"),
        ({"RECONCILER_ROUNDS__RETENTION_HOURS": "0.01"}, "retention_hours"),
        ({"RECONCILER_SWEEP__KEEP_DAYS": "10"}, "a tombstone must outlive every half"),
        ({"RECONCILER_ROUNDS__RETENTION_HOURS": "720"}, "sweep.keep_days = 30: must be 38 or more"),
        ({"RECONCILER_UNIQUE_KEY_TOPIC__QUEUES": "1025"}, "queues = '1025'"),
        ({"RECONCILER_ENVIRONMENT": "a b"}, "environment"),
        ({"RECONCILER_PRODUCERS__3__GROUP": "x"}, "no entry 3"),
        ({"RECONCILER_LEDGER__URL": "postgresql://h:99999/x"}, "port"),
        ({"RECONCILER_LEDGER__URL": "oracle://h/x"}, "sqlite, postgresql"),
        ({"RECONCILER_LEDGER__URL": "postgresql://u:p@ss:word@h/x"}, "ledger.url = (hidden): expected scheme://"),
        (
            {"RECONCILER_LEDGER__URL": "postgresql://u@h/x?password=word"},
            "ledger.url = postgresql://h/x: put the password before",
        ),
        ({"RECONCILER_UNIQUE_KEY_TOPIC__TOPICS__ODRERS": "OX"}, "topics has 'ODRERS', which no producer sends"),
        ({"RECONCILER_REPAIRS__TOPICS__ODRERS": "false"}, "repairs.topics has 'ODRERS', which no producer sends"),
        ({"RECONCILER_UNIQUE_KEY_TOPIC__SIGNATURE_SECRET_FILE": "/dev/null"}, "signature_secret = (hidden)"),
        ({"RECONCILER_PRODUCERS__GROUP": "x"}, "names a list"),
        ({"RECONCILER_LEDGER__URL": "postgresql://h"}, "names no database"),
        ({"RECONCILER_ROCKETMQ__NAME_SERVERS": "h:0"}, "no host:port"),
        ({"RECONCILER_REDIS__URL_FILE": "/no/such/file"}, "cannot be read"),
    ],
)
def test_value_that_cannot_work_is_refused(environ: dict[str, str], part: str) -> None:
    assert part in problems_of(environ)


@pytest.mark.parametrize(
    "environ",
    [
        {"RECONCILER_REDIS__URL": "redis:/:hunter2@127.0.0.1:6379"},
        {"RECONCILER_REDIS__URL": "://:hunter2@127.0.0.1"},
        {"RECONCILER_REDIS__UR": "redis://:hunter2@127.0.0.1"},
        {"RECONCILER_REDIS": "redis://:hunter2@127.0.0.1"},
        {"RECONCILER_REDIS__URL_FILE": "redis://:hunter2@127.0.0.1"},
        {"RECONCILER_LEDGER__URL_FILE": "postgresql://u:hunter2@h/d\0"},
        {"RECONCILER_LEDGER__KEEP_DAYS": "postgresql://u:hunter2@h/d"},
        {"RECONCILER_SUBSCRIPTIONS": '[{"inbox_url": "hunter2"}]'},
        {"RECONCILER_SUBSCRIPTIONS": '{"inbox_url": "hunter2"}'},
        {"RECONCILER_SUBSCRIPTIONS__0__INBOX_URL": "hunter2"},
    ],
)
def test_secret_at_a_wrong_place_or_malformed_is_not_shown(environ: dict[str, str]) -> None:
    text = problems_of(environ)
    assert "hunter2" not in text
    assert next(iter(environ)).split("__")[0].removeprefix("RECONCILER_").lower() in text.lower()


@pytest.mark.parametrize(
    "url", ["postgresql://u:hun@ter2@h/x", "postgresql://u:hun/ter2@h/x", "mysql://u:hun#ter2@h/x"]
)
def test_password_that_is_not_percent_encoded_is_not_shown(url: str) -> None:
    text = problems_of({"RECONCILER_LEDGER__URL": url})
    assert "hun" not in text
    assert "ter2" not in text


@pytest.mark.parametrize(
    "whole_list",
    ['[{"group": "g", "topics": ["ORDERS"]}]', '[{group = "g", topics = ["ORDERS"]}]'],
    ids=["JSON", "TOML"],
)
def test_list_from_the_environment_is_json_or_toml(whole_list: str) -> None:
    settings = load_settings(EXAMPLE, {"RECONCILER_PRODUCERS": whole_list})
    assert [(p.group, p.topics) for p in settings.producers] == [("g", ["ORDERS"])]


def test_topic_with_capitals_gets_its_route_from_the_environment() -> None:
    route = "RECONCILER_UNIQUE_KEY_TOPIC__TOPICS"
    for environ in ({f"{route}__ORDERS": "OX"}, {route: '{"ORDERS": "OX"}'}):
        assert load_settings(EXAMPLE, environ).unique_key_topic.name_for("ORDERS") == "OX"


def test_check_answerer_without_evidence_is_refused(tmp_path: Path) -> None:
    text = EXAMPLE.read_text().replace("answer_checks = false", "answer_checks = true")
    text = re.sub(r"^outbox_url.*$", "", text, flags=re.MULTILINE)
    path = tmp_path / "reconciler.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match="answer without evidence"):
        load_settings(path, {})


def test_contradictions_are_told_beside_wrong_fields() -> None:
    text = problems_of(
        {
            "RECONCILER_SUBSCRIPTIONS__0__LATE_AFTER_SECONDS": "3",
            "RECONCILER_LEDGER__KEEP_DAYS": "none",
            "RECONCILER_REDIS__PASSWORD": "hunter2",
        }
    )
    assert "late_after_seconds = 3" in text
    assert "ledger.keep_days = 'none'" in text
    assert "redis.password: unknown setting" in text
    assert "hunter2" not in text


def test_two_ladders_for_one_topic_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "reconciler.toml"
    other = '\n[[subscriptions]]\ntopic = "ORDERS"\ngroup = "shipping"\nrepair_order = ["republish"]\n'
    path.write_text(EXAMPLE.read_text() + other)
    with pytest.raises(ConfigurationError, match="share one ladder"):
        load_settings(path, {})


def test_secret_from_a_file_is_read_and_never_shown(tmp_path: Path) -> None:
    secret = tmp_path / "redis_url"
    secret.write_text("redis://:hunter2@127.0.0.1:6379/0\n")
    settings = load_settings(EXAMPLE, {"RECONCILER_REDIS__URL_FILE": str(secret)})
    assert settings.redis.url.reveal().endswith("@127.0.0.1:6379/0")
    assert "hunter2" not in repr(settings) + settings.model_dump_json()


def test_missing_or_broken_file_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no such file"):
        load_settings(tmp_path / "absent.toml", {})
    broken = tmp_path / "broken.toml"
    broken.write_text("environment = ")
    with pytest.raises(ConfigurationError, match="no valid TOML"):
        load_settings(broken, {})


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-le"])
def test_a_file_in_another_encoding_is_told_with_its_line(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "reconciler.toml"
    path.write_bytes("\n# Zürich\n".encode(encoding))
    line = 1 if encoding == "utf-16" else 2
    with pytest.raises(ConfigurationError, match=f"no UTF-8 text at line {line}: save the file as UTF-8"):
        load_settings(path, {})


def test_flag_beats_environment_beats_unit_folder(tmp_path: Path) -> None:
    (tmp_path / "reconciler.toml").write_text("")
    unit = {"CONFIGURATION_DIRECTORY": str(tmp_path)}
    assert settings_path(None, unit) == tmp_path / "reconciler.toml"
    assert settings_path(None, {**unit, "RECONCILER_CONFIG": "a.toml"}) == Path("a.toml")
    assert settings_path(Path("b.toml"), {**unit, "RECONCILER_CONFIG": "a.toml"}) == Path("b.toml")


def test_folder_that_may_not_be_searched_is_told_and_not_passed_over(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(ConfigurationError, match="cannot be looked for"):
        settings_path(None, {"CONFIGURATION_DIRECTORY": str(loop)})
    assert settings_path(None, {"CONFIGURATION_DIRECTORY": str(tmp_path / "nowhere")}) is None

"""The plug-ins' public names: pages of the docs, `__all__` and the imports of the examples name the same ones."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
from importlib import import_module
from pathlib import Path

import pytest

from docs import python_api
from docs.python_api import MODULES
from reconciler.errors import FormerPath

ROOT = Path(__file__).parents[2]
PLUG_INS = ["checkback_producers", "checkback_consumers"]
#: The page for the plug-in's users.
PAGE = {"checkback_producers": "docs/reference/sending.md", "checkback_consumers": "docs/reference/receiving.md"}
#: Pages about how to use the product. Others explain its inside, and name private classes by their files.
PAGES_FOR_USERS = [
    "README.md",
    "docs/how-to/sending.md",
    "docs/how-to/receiving.md",
    "docs/how-to/hand-over.md",
    "docs/how-to/native-client.md",
    "docs/reference/sending.md",
    "docs/reference/receiving.md",
    "docs/tutorial/first-loss.md",
    "docs/how-to/troubleshooting.md",
    "docs/how-to/procedures.md",
]
EXAMPLES = [ROOT / page for page in PAGES_FOR_USERS] + sorted((ROOT / "docs/examples").glob("*.py"))
DOCSTRINGS = sorted([*(ROOT / "producers").rglob("*.py"), *(ROOT / "consumers").rglob("*.py")])
_IMPORT = re.compile(r"from (checkback_\w+(?:\.\w+)*) import ([\w, ]+|\([\w,\s]+\))")
_DOTTED = re.compile(r"(?<![\w/])checkback_(?:producers|consumers)(?:\.\w+)+")


def public_names(package: str) -> dict[str, list[str]]:
    """By module: the package and those beside it that are public."""
    return {name: import_module(name).__all__ for name in MODULES if name.partition(".")[0] == package}


PUBLIC = {module: set(names) for package in PLUG_INS for module, names in public_names(package).items()}
#: What the Python API shows.
DOCUMENTED = {module: set(import_module(module).__all__) for module in MODULES}
_ANY_IMPORT = re.compile(
    r"^\s*from ((?:checkback_\w+|reconciler)(?:\.\w+)*) import ([\w, ]+|\([\w,\s]+\))", re.MULTILINE
)
_WHOLE_MODULE = re.compile(r"^\s*import ((?:checkback_\w+|reconciler)(?:\.\w+)*)", re.MULTILINE)
#: A name in a sentence, which may be called there. Commands, files and topics have no such form.
_SPAN = re.compile(r"`((?:checkback_\w+|reconciler)(?:\.\w+)+)(?:\([^`]*\))?`")
#: The pages that tell readers what to write, in both languages, and what they copy.
WRITTEN_BY_READERS = [
    *(ROOT / name for name in ("README.md", "README.zh-CN.md")),
    *sorted(page for room in ("tutorial", "how-to") for page in ROOT.glob(f"docs/**/{room}/*.md")),
    *sorted((ROOT / "docs/examples").glob("*.py")),
]
_FILES = frozenset({"reconciler.toml"})


def docstrings(path: Path) -> str:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    return "\n".join(
        ast.get_docstring(n) or "" for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, documented)
    )


def foreign(text: str) -> list[str]:
    """What the text imports, or names with dots, and what is not public."""
    found = [
        f"{module}.{name}"
        for module, names in _IMPORT.findall(text)
        for name in re.findall(r"\w+", names)
        if name not in PUBLIC.get(module, ())
    ]
    dotted = [name for name in _DOTTED.findall(text) if not name.endswith(".py")]
    return found + [
        name
        for name in dotted
        if name not in PUBLIC and name.rpartition(".")[2] not in PUBLIC.get(name.rpartition(".")[0], ())
    ]


@pytest.mark.parametrize("package", PLUG_INS)
def test_no_face_outgrows_what_one_holds_in_mind_and_every_name_exists(package: str) -> None:
    assert len(PUBLIC[package]) <= 12
    for module, names in public_names(package).items():
        assert names == sorted(names)
        assert all(hasattr(import_module(module), name) for name in names)


@pytest.mark.parametrize("package", PLUG_INS)
def test_every_error_of_a_plug_in_can_be_caught_by_its_public_name(package: str) -> None:
    module = import_module(f"{package}.errors")
    errors = {n for n, value in vars(module).items() if inspect.isclass(value) and value.__module__ == module.__name__}
    assert errors
    assert errors <= PUBLIC[module.__name__]
    assert all(issubclass(getattr(module, name), Exception) for name in PUBLIC[module.__name__])


@pytest.mark.parametrize("module", sorted(PUBLIC))
def test_every_public_name_is_on_its_page(module: str) -> None:
    page = (ROOT / PAGE[module.partition(".")[0]]).read_text()
    section = page.split("\n## Names\n", 1)[1]
    assert f"`from {module} import`" in section
    assert not [name for name in PUBLIC[module] if not re.search(rf"`{name}`", section)]


@pytest.mark.parametrize("file", python_api.PAGES)
def test_a_table_of_arguments_has_all_of_them(file: str) -> None:
    page = (ROOT / "docs/reference" / file).read_text(encoding="utf-8")
    for called in page.split("```python\n")[1:]:
        signature, _, behind = called.partition("```")
        text = behind.split("\n#")[0]
        if "| argument |" not in text:
            continue
        header = (signature.rpartition(" -> ")[0] or signature).strip()
        tree = ast.parse(f"async def {header.removeprefix('async ')}: ...")
        made = tree.body[0]
        assert isinstance(made, ast.AsyncFunctionDef)
        found = made.args
        names = [one.arg for one in (*found.args, *([found.vararg] if found.vararg else []), *found.kwonlyargs)]
        assert re.findall(r"^\| `\*?(\w+)` ", text, re.MULTILINE) == names


def test_calls_that_services_make_have_a_table_of_arguments_and_an_example() -> None:
    pages = "\n".join((ROOT / "docs/reference" / file).read_text(encoding="utf-8") for file in python_api.PAGES)
    sections = {section.split("\n", 1)[0]: section for section in pages.split("\n### ")}
    for name in python_api.EXAMPLES:
        assert "An example, from" in sections[name]
        assert name == "Transaction" or "| argument |" in sections[name]


@pytest.mark.parametrize("path", WRITTEN_BY_READERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_readers_are_told_to_write_has_names_that_the_python_api_shows(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    unknown = [
        f"{module}.{name}"
        for module, names in _ANY_IMPORT.findall(text)
        for name in re.findall(r"\w+", names)
        if name not in DOCUMENTED.get(module, ())
    ]
    unknown += [module for module in _WHOLE_MODULE.findall(text) if module not in DOCUMENTED]
    spans = set(_SPAN.findall(text)) - _FILES - DOCUMENTED.keys()
    unknown += [span for span in spans if span.rpartition(".")[2] not in DOCUMENTED.get(span.rpartition(".")[0], ())]
    assert unknown == [], "export it from reconciler.testing or a plug-in, or name what is"


#: What pages of 0.2.0 showed -> where it is public today.
FORMER = {
    "reconciler.sql.engines.open_engine": "checkback_producers.tables",
    "reconciler.sql.tables.outbox": "checkback_producers.tables",
    "reconciler.sql.tables.outbox_identity": "checkback_producers.tables",
    "reconciler.sql.tables.outbox_filter": "checkback_producers.tables",
    "reconciler.sql.tables.inbox": "checkback_consumers.tables",
    "reconciler.sql.identity.ensure_identity": "checkback_producers.tables",
    "reconciler.embedded.server.EmbeddedBroker": "reconciler.testing",
    "reconciler.embedded.access_control.BrokerUser": "reconciler.testing",
    "reconciler.embedded.tls.ServerTls": "reconciler.testing",
    "reconciler.embedded.tls.TlsMode": "reconciler.testing",
    "reconciler.testing.memory.MemoryLedger": "reconciler.testing",
    "reconciler.testing.memory_shards.MemoryShards": "reconciler.testing",
    "reconciler.clock.ManualClock": "reconciler.testing",
    "reconciler.contract.tables.HoldKind": "reconciler.testing",
    "reconciler.rocketmq.client.offsets.Offsets": "reconciler.rocketmq",
}


@pytest.mark.parametrize("former", FORMER)
def test_a_path_that_a_page_of_0_2_0_showed_works_and_names_the_one_of_today(former: str) -> None:
    module, _, name = former.rpartition(".")
    names: dict[str, object] = {}
    of_a_service = compile(f"from {module} import {name}", "/srv/shop/orders.py", "exec")
    with pytest.warns(FormerPath, match=rf"import {name} from .*{FORMER[former]}"):
        exec(of_a_service, names)
    assert names[name] is getattr(import_module(FORMER[former]), name)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_no_example_imports_a_private_name(path: Path) -> None:
    assert not foreign(path.read_text())


def test_no_docstring_sends_a_user_to_a_private_name() -> None:
    assert not {str(path.relative_to(ROOT)): names for path in DOCSTRINGS if (names := foreign(docstrings(path)))}


@pytest.mark.parametrize("page", PAGES_FOR_USERS)
def test_every_class_that_a_page_for_users_names_is_public(page: str) -> None:
    defined = {
        node.name
        for package in PLUG_INS
        for module in pkgutil.iter_modules(import_module(package).__path__, f"{package}.")
        for node in ast.parse(inspect.getsource(import_module(module.name))).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    }
    words = set(re.findall(r"(?<![\w.])[A-Z][a-z]+[A-Z]\w*", (ROOT / page).read_text()))
    assert words & defined or page.startswith(("docs/how-to/troubleshooting", "docs/how-to/procedures"))
    assert (words & defined) <= set().union(*PUBLIC.values())

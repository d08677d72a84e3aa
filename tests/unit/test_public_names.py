"""The plug-ins' public names: pages of the docs, `__all__` and the imports of the examples name the same ones."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLUG_INS = ["checkback_producers", "checkback_consumers"]
#: The page for the plug-in's users.
PAGE = {"checkback_producers": "docs/reference/sending.md", "checkback_consumers": "docs/reference/receiving.md"}
#: Pages about how to use the product. Others explain its inside, and name private classes by their files.
PAGES_FOR_USERS = [
    "README.md",
    "docs/how-to/sending.md",
    "docs/how-to/receiving.md",
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
    """By module: the package, its `errors`, and its `security`."""
    return {
        name: import_module(name).__all__
        for name in (package, f"{package}.errors", f"{package}.metrics", f"{package}.security")
    }


PUBLIC = {module: set(names) for package in PLUG_INS for module, names in public_names(package).items()}


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

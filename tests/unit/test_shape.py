"""The shape of the tree, tested: sizes, names, one map of Redis, and an ARCHITECTURE.md that tells the truth."""

import ast
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

pytestmark = pytest.mark.unmeasured  # reads the text of the product

ROOT = Path(__file__).parents[2]
PRODUCT = [p for top in ("reconciler", "producers", "consumers") for p in sorted((ROOT / top).rglob("*.py"))]
#: Alembic fixes the layout of its revisions.
GENERATED = "migrations"
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
BANNED = {"utils", "util", "helpers", "helper", "common", "misc", "base", "manager", "managers", "tools"}


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Everything in a file, read and walked once per process, because twelve tests look at all of the product."""
    return (*ast.walk(ast.parse(path.read_text("utf-8"))),)


def top(path: Path) -> list[ast.stmt]:
    module = nodes(path)[0]
    assert isinstance(module, ast.Module)
    return module.body


def functions(path: Path) -> Iterator[tuple[str, int]]:
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", (node.end_lineno or 0) - node.lineno + 1


def test_no_product_file_grows_past_what_one_reads_in_one_go() -> None:
    long = {str(p.relative_to(ROOT)): n for p in PRODUCT if (n := len(p.read_text().splitlines())) > FILE_LINES_MAX}
    assert not long


def test_median_file_holds_one_idea() -> None:
    sizes = [
        len(text.splitlines())
        for p in PRODUCT
        if p.name != "__init__.py" and GENERATED not in p.parts and (text := p.read_text()).strip()
    ]
    assert 80 <= statistics.median(sizes) <= 170


def test_no_function_is_longer_than_a_screen() -> None:
    assert not {name: lines for p in PRODUCT for name, lines in functions(p) if lines > FUNCTION_LINES_MAX}


def test_no_file_is_named_for_everything() -> None:
    assert not [str(p) for p in PRODUCT if p.stem in BANNED or p.parent.name in BANNED]


def test_no_file_lies_loose_at_the_root_and_no_package_does_its_work_in_its_init() -> None:
    loose = {path.name for path in (ROOT / "reconciler").iterdir() if path.is_file()}
    assert loose == {"__init__.py", "__main__.py", "clock.py", "errors.py", "py.typed", "silence.py"}
    working = {
        str(path.relative_to(ROOT))
        for path in PRODUCT
        if path.name == "__init__.py"
        for node in top(path)
        if not isinstance(node, ast.ImportFrom | ast.Assign | ast.Expr)
        and not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    }
    assert not working, "an __init__ has a docstring, imports and __all__"


def imports() -> dict[str, set[str]]:
    """Module of the product -> those that it imports, in functions and for types alone, too."""
    names = {
        ".".join(p.relative_to(ROOT / top).with_suffix("").parts).removesuffix(".__init__"): p
        for top in (".", "producers", "consumers")
        for p in PRODUCT
        if p.is_relative_to(ROOT / top) and (top != "." or p.is_relative_to(ROOT / "reconciler"))
    }
    found: dict[str, set[str]] = {}
    for name, path in names.items():
        asked: set[str] = set()
        for node in nodes(path):
            if isinstance(node, ast.Import):
                asked |= {each.name for each in node.names}
            elif isinstance(node, ast.ImportFrom):
                inner = {f"{node.module}.{each.name}" for each in node.names}
                asked |= {each if each in names else str(node.module) for each in inner}
        found[name] = asked & names.keys() - {name}
    return found


def test_no_files_import_one_another_in_a_circle() -> None:
    left = imports()
    assert "reconciler.errors" in left["reconciler.web.audits.found"]
    while ends := {name for name, below in left.items() if not below & left.keys()}:
        left = {name: below for name, below in left.items() if name not in ends}
    while tops := left.keys() - set().union(*left.values()):
        left = {name: below for name, below in left.items() if name not in tops}
    assert not sorted(left), "each of these imports another one of them"


def test_no_class_name_means_two_things() -> None:
    homes: dict[str, list[str]] = {}
    for path in PRODUCT:
        for node in top(path):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert not {name: places for name, places in homes.items() if len(places) > 1}


#: Members whose text is not their name: for people, or written so by the broker.
TOLD_OTHERWISE = {
    "NumberSource": {"EVENTS", "PROCESS", "LEDGER"},
    "Question": {"HAND_OVERS", "COPIES_AGAIN", "FILTER_KIND"},
    "ConsumeFrom": {"LAST", "FIRST", "TIMESTAMP"},
    "BrokerFamily": {"V3_2", "V4_2", "V4_3", "V5_1"},
}


def test_a_word_of_a_closed_list_is_the_name_of_its_member() -> None:
    """Rows, JSON and log lines hold the text: one that has changed is a word that nobody wrote and nobody reads."""
    otherwise: dict[str, set[str]] = {}
    for path in PRODUCT:
        for each in nodes(path):
            if isinstance(each, ast.ClassDef) and any("Enum" in ast.unparse(one) for one in each.bases):
                for line in each.body:
                    match line:
                        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text))) if (
                            re.sub(r"[ -]", "_", text).lower() != name.lower()
                        ):
                            otherwise.setdefault(each.name, set()).add(name)
    assert otherwise == TOLD_OTHERWISE


def called(call: ast.Call) -> str:
    """The last name of the function that is called; empty for a call of what is no name."""
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def calls(name: str) -> Iterator[tuple[str, dict[str | None, ast.expr]]]:
    """Place and keyword arguments of each call in the product of what has this name."""
    for path in PRODUCT:
        for node in nodes(path):
            if isinstance(node, ast.Call) and called(node) == name:
                yield f"{path.relative_to(ROOT)}:{node.lineno}", {word.arg: word.value for word in node.keywords}


def test_no_thread_keeps_a_process_from_its_end() -> None:
    daemons = {place: ast.unparse(given["daemon"]) for place, given in calls("Thread") if "daemon" in given}
    assert daemons == {place: "True" for place, _ in calls("Thread")}
    assert daemons


def test_every_option_of_a_program_says_what_it_is_for() -> None:
    silent = [place for place, given in calls("add_argument") if "help" not in given]
    assert not silent


def test_no_pause_is_longer_at_first_than_it_may_ever_be() -> None:
    pauses = [
        (place, ast.literal_eval(given["first_seconds"]), ast.literal_eval(given["longest_seconds"]))
        for place, given in calls("Backoff")
        if given and all(isinstance(value, ast.Constant) for value in given.values())
    ]
    assert not [place for place, first, longest in pauses if first > longest]
    assert len(pauses) > 5


def test_redis_keys_are_built_in_one_place() -> None:
    keyspace = ROOT / "reconciler/contract/keyspace.py"
    key = re.compile(r"[\"']reconciler:(inbox:)?v1|f[\"'][^\"']*:(half|commit|pending|generation|epoch)[\"']")
    offenders = [str(p.relative_to(ROOT)) for p in PRODUCT if p != keyspace and key.search(p.read_text())]
    assert key.search(keyspace.read_text())
    assert not offenders


#: The only places that write to a terminal, where what comes from outside is made visible; and why there are several.
PRINTING = {
    "reconciler/instrumentation/console.py": "service, commands and demo",
    "reconciler/instrumentation/log.py": "the log's handler",
    "reconciler/audit/streams.py": "the audit shares no code with the service",
    "reconciler/embedded/serving.py": "one line of JSON in ASCII, for programs",
}
_WRITES = re.compile(
    r"(?<![\w.])print\(|\bprint_exc(eption)?\(|\btyper\.(echo|secho|echo_via_pager|confirm|prompt|style)\("
    r"|\brich\.print|(?<![\w.])Console\(|sys\.(__)?std(out|err)(__)?(\.buffer)?\.write|os\.write\([12],"
    r"|file=sys\.|StreamHandler\(|json\.dump\([^)]*sys\.std|_write\(sys\.|showwarning"
)


def test_nothing_is_printed_but_where_hostile_text_is_made_visible() -> None:
    printing = {str(p.relative_to(ROOT)) for p in PRODUCT if _WRITES.search(p.read_text())}
    assert printing == PRINTING.keys()


def test_no_description_of_a_progress_bar_is_markup() -> None:
    columns = [found for p in PRODUCT for found in re.findall(r"\bTextColumn\([^)]*\)", p.read_text())]
    assert columns
    assert all("markup=False" in column for column in columns)


PLUG_INS = ["checkback_producers", "checkback_consumers"]


@pytest.mark.parametrize("package", [*PLUG_INS, "reconciler.rocketmq", "reconciler.embedded"])
def test_exported_names_exist(package: str) -> None:
    module = import_module(package)
    assert all(hasattr(module, name) for name in getattr(module, "__all__", []))


@pytest.mark.parametrize(
    ("module", "spared"),
    [
        ("reconciler.rocketmq", "checkback_producers sqlalchemy redis zstandard"),
        (
            "reconciler.shards.sets",
            "checkback_consumers sqlalchemy reconciler.rocketmq",
        ),
        (
            "checkback_consumers.replay_worker, checkback_producers.sweeper",
            "reconciler.telling.ports.jobs reconciler.telling.ports.notices reconciler.policy.ports.history",
        ),
        (
            "reconciler.evidence.outbox",
            "checkback_producers sqlalchemy.orm",
        ),
        (
            "reconciler.cli.scan_command, reconciler.commands.scan_page",
            "sqlalchemy redis pydantic apscheduler structlog pyarrow jinja2",
        ),
        (
            "reconciler.cli.app, reconciler.instrumentation.log, reconciler.commands.status.reading",
            "apscheduler checkback_consumers checkback_producers sqlalchemy.orm pyarrow structlog alembic jinja2",
        ),
    ],
)
def test_a_module_loads_nothing_that_it_never_uses(module: str, spared: str) -> None:
    script = f"import sys, {module}; print(*(m for m in {spared.split()!r} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


ARCHITECTURE = ROOT / "ARCHITECTURE.md"


def way_of_one(thing: str) -> str:
    text = ARCHITECTURE.read_text()
    return text.split(f"### The way of one {thing}", 1)[1].split("\n#", 1)[0]


@pytest.mark.parametrize("thing", ["message", "audit"])
def test_architecture_leads_through_at_most_twelve_files_that_exist(thing: str) -> None:
    links = set(re.findall(r"\]\(([^)#]+\.py)\)", way_of_one(thing)))
    assert 1 <= len(links) <= 12
    assert all((ROOT / link).is_file() for link in links)


@pytest.mark.parametrize(("thing", "steps_min"), [("message", 10), ("audit", 8)])
def test_architecture_names_one_existing_function_a_step(thing: str, steps_min: int) -> None:
    steps = re.findall(r"\[`([\w.]+)`\]\(([^)#]+\.py)\)", way_of_one(thing))
    assert len(steps) >= steps_min
    for dotted, link in steps:
        names = {n.name for n in nodes(ROOT / link) if isinstance(n, ast.FunctionDef | ast.ClassDef)}
        assert set(dotted.split(".")) <= names, (dotted, link)


def glossary() -> list[tuple[str, str]]:
    rows = re.findall(r"^\| ([\w ,-]+) \| \[`[\w/.]+`\]\(([^)]+)\) \|$", ARCHITECTURE.read_text(), re.MULTILINE)
    return [(word, link) for words, link in rows for word in words.split(", ")]


def test_no_more_words_than_a_maintainer_can_hold() -> None:
    assert 20 <= len(glossary()) <= 25


@pytest.mark.parametrize(("word", "link"), glossary())
def test_word_is_defined_where_the_glossary_says(word: str, link: str) -> None:
    homes = (ast.Module, ast.ClassDef)
    docs = " ".join(ast.get_docstring(node) or "" for node in nodes(ROOT / link) if isinstance(node, homes))
    assert re.search(rf"\*{word}s?\*", docs), "define it there: *word*, and what it means"


def test_every_room_has_a_line() -> None:
    drawn = re.findall(r"\b(\w+)/", ARCHITECTURE.read_text().split("## 2. The rooms")[1].split("\n## ")[0])
    rooms = {p.parent.name for p in (ROOT / "reconciler").rglob("*.py") if GENERATED not in p.parts} - {"reconciler"}
    assert not sorted(rooms - set(drawn))


def test_one_function_turns_the_urls_of_evidence_into_sources_and_nothing_else_reads_them() -> None:
    names = {"outbox_url", "outbox_urls", "inbox_url", "inbox_urls"}
    reading = {
        str(path.relative_to(ROOT))
        for path in PRODUCT
        for node in nodes(path)
        if isinstance(node, ast.Attribute) and node.attr in names
    }
    # The settings check themselves; the audit judges by a reading of its own.
    assert reading == {
        "reconciler/settings/schema.py",
        "reconciler/wiring/databases.py",
        "reconciler/audit/collect/configuration.py",
    }


def test_a_commit_is_made_of_an_outbox_row_of_a_trusted_announcement_or_by_a_row_of_the_business_and_nowhere_else() -> (
    None
):
    made = {
        f"{path.relative_to(ROOT)}: {ast.unparse(call.func)}"
        for path in PRODUCT
        for call in nodes(path)
        if isinstance(call, ast.Call)
        and re.fullmatch(r"(Commit|OutboxRow)(\.\w+)?|.*\.commit_(of_copy|by_row)", ast.unparse(call.func))
    }
    assert made == {
        "reconciler/evidence/outbox.py: OutboxRow.of_columns",
        "reconciler/policy/commit_evidence.py: Commit.of_copy",
        "reconciler/policy/repairing/case.py: self.topic.evidence.commit_of_copy",
        "reconciler/policy/repairing/by_row.py: case.topic.evidence.commit_by_row",
    }


def test_a_simulated_class_has_each_value_that_its_product_class_is_made_with() -> None:
    """They take no constructor of the product, which would connect: what is new there would be missed late."""
    made = {
        "RemotingBrokerEvidence": "evidence/brokers.py",
        "RemotingBrokerRepairs": "evidence/repairs.py",
        "SqlBusinessQuery": "evidence/business_query.py",
    }
    filled: set[str] = set()
    for path in (ROOT / "tests" / "simulation").glob("*.py"):
        for node in nodes(path):
            bases = {ast.unparse(base) for base in node.bases} if isinstance(node, ast.ClassDef) else set()
            for base in bases & made.keys():
                texts = {one.value for one in ast.walk(node) if isinstance(one, ast.Constant)}
                wanted = set(_values_of(ROOT / "reconciler" / made[base], base))
                assert wanted
                assert wanted <= texts, f"{path.name}: {wanted - texts}"
                filled.add(base)
    assert filled == made.keys()


def _values_of(path: Path, name: str) -> Iterator[str]:
    for node in nodes(path):
        if isinstance(node, ast.ClassDef) and node.name == name:
            (init,) = (one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__")
            yield from (
                one.attr
                for one in ast.walk(init)
                if isinstance(one, ast.Attribute)
                and isinstance(one.ctx, ast.Store)
                and ast.unparse(one.value) == "self"
            )

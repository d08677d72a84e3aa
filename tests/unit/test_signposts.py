"""Every file, module, class and function that a page, a docstring or a comment names exists.

A name that was left behind by a rename sends the reader to a place that is gone. What is read as a name:
- `a/b.py`, `b.py`, `b.py:12`, `b.py::test_x`: a file of this tree that ends so; its line; its function
- `reconciler/policy/`: a path that begins with a folder at the top of this tree; `*` and `{a,b}` as a shell reads them
- `reconciler.policy.round`, `checkback_producers.Message`: a module, and what it defines or exports
- `SqlOutbox.record`: an attribute of a class of this tree
- `in_snake_case`, `InHumps`: a word of the code, a file or a folder. Java's names `inHumps` are not looked at, and
  its classes are known by their last words (`_JAVA`).
Fenced blocks of pages are examples of somebody else's code: of them only the imports from here are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
THIS = Path(__file__).relative_to(ROOT).as_posix()
#: The folders of this tree that the paths in prose begin with.
TOPS = ("producers", "consumers", "reconciler", "tests", "docs", "benchmarks", "config", "requirements")
PACKAGES = {"reconciler": "", "tests": "", "benchmarks": "", "checkback_producers": "producers/"} | {
    "checkback_consumers": "consumers/"
}
_UNTRACKED = re.compile(r"(^|/)(\.|__pycache__|target/|build/|dist/|\w+\.egg-info)|\.(pyc|log)$")
#: Classes of RocketMQ, of its clients and of Netty begin or end in these words; no class of ours does (tested).
_JAVA = re.compile(
    r"^(Default|Abstract|Netty|MQClient|CTransaction|CConsume|TransactionalMessage|TransactionalOp|ConsumeMessage)[A-Z]\w+|"
    r"\w+(Processor|Manager|Controller|Impl|Inner|ForC|(Request|Response)Header(V2)?|SysFlag|Util|Info)$"
)
#: A method of Java: `Class.methodName`.
_JAVAS_METHOD = re.compile(r"\b([A-Z]\w+)[.#][a-z]+[A-Z]\w*")
#: What else belongs to others: RocketMQ, products, types of libraries, settings of databases and servers.
_OTHERS = """
AclClientRPCHook AclException AllocateMessageQueueAveragely AuthConfig AuthenticationException AuthorizationException
ConsumerData ConsumerSendMsgBack CreateAclSubCommand CreateUserSubCommand ExpressionType MQ_INST_1_ab OffsetMovedEvent
PlainAccessValidator RocketMQAction UpdateAccessConfigSubCommand
GetConsumerStatusBody GetMessageResult BoltDB NServiceBus WebP get_session target_metadata
HeartbeatData MapSetter MessageClientIDSetter MessageConst MessageIdCodec MessageMapSetter MessageVersion PermName
PullRequestHoldService visibility_timeout local_execute user_args innodb_flush_log_at_trx_commit
PopBufferMergeService PopReviveService
PullMessageResponseHeader QueueData RemoteBrokerOffsetStore RemotingSysResponseCode ResetOffsetBody
RocketMQSerializable ScheduleMessageService SessionCredentials init_connect
SendMessageResponseHeader SerializeType SetMessageRequestModeRequestBody
SubscriptionData SubscriptionGroupConfig TimerMessageStore TlsSystemConfig
TopicConfigSerializeWrapper TopicRouteData TopicValidator
RocketMQ RocketMQException FastAPI PostgreSQL MariaDB PyPI GitHub JavaScript MaxScale ProxySQL PgCat SparkConf
SparkSubmitCommandBuilder SplitMix64 DictCursor PGTransactionStatusType Default_Ignorable_Code_Point
MessageIdGenerator StringIdMaker UniqueIdGenerator
fixed_size_binary gtid_domain_id handshake_failure ignore_startup_parameters post_fork sd_notify wait_for
replica_preserve_commit_order slave_parallel_mode group_replication_consistency tidb_read_staleness tidb_replica_read
ob_read_consistency default_transaction_use_follower_reads LiteFS caching_sha2_password
"""


@dataclass(frozen=True)
class Prose:
    """One page, docstring or comment, and where it begins."""

    path: str
    line: int
    text: str

    def at(self, position: int) -> str:
        return f"{self.path}:{self.line + self.text.count(chr(10), 0, position)}"


@cache
def tracked() -> frozenset[str]:
    """Files of the tree, and its folders with a slash at the end."""
    files = {p.relative_to(ROOT).as_posix() for top in TOPS for p in (ROOT / top).rglob("*") if p.is_file()}
    files |= {p.name for p in ROOT.iterdir() if p.is_file()} | {".ci/run"}
    files = {f for f in files if f == ".ci/run" or not _UNTRACKED.search(f)}
    return frozenset(files | {f"{parent.as_posix()}/" for f in files for parent in Path(f).parents if parent.name})


@cache
def source(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8", errors="replace")


#: A docstring stands at the beginning of a file or behind a line that ends in a colon; other long strings are code.
_LONG = re.compile(r'(?P<before>\A(?:#[^\n]*\n)*|:(?:  #[^\n]*)?\n|.)(?P<text>[ ]*r?""".*?""")', re.DOTALL)
_COMMENT = re.compile(r"^ *#(?:[: !].*|$)(?:\n *#(?:[: !].*|$))*|(?<=  )#[: !].*", re.MULTILINE)


def emptied(text: str) -> str:
    return re.sub(r"[^\n]", "", text)


@cache
def parts(path: str) -> tuple[list[Prose], str]:
    """The docstrings and comments of a Python file, and its code without them."""
    text = source(path)
    found, left, strings = [], [], []
    position = 0
    for long in _LONG.finditer(text):
        left.append(text[position : long.start("text")])
        if long["before"][:1] in ("", "#", ":"):
            found.append((long.start("text"), long["text"]))
        else:
            strings.append(long["text"])
        left.append(emptied(long["text"]))
        position = long.end()
    code = "".join([*left, text[position:]])
    line = [(text.count("\n", 0, start) + 1, words) for start, words in found]
    line += [(code.count("\n", 0, c.start()) + 1, c[0]) for c in _COMMENT.finditer(code)]
    return [Prose(path, *piece) for piece in line], "\n".join([_COMMENT.sub("", code), *strings])


@cache
def code() -> str:
    return "\n".join(parts(f)[1] for f in sorted(tracked() - {THIS}) if f.endswith(".py"))


@cache
def pages() -> list[Prose]:
    return [Prose(f, 1, source(f)) for f in sorted(tracked()) if f.endswith(".md")]


@cache
def everything() -> list[Prose]:
    """Pages without their fenced blocks, and all docstrings and comments."""
    found = []
    for page in pages():
        fenced = re.sub(r"^( *)```.*?^\1```", lambda m: emptied(m[0]), page.text, flags=re.M | re.S)
        found.append(Prose(page.path, 1, fenced))
    found += [piece for f in sorted(tracked() - {THIS}) if f.endswith(".py") for piece in parts(f)[0]]
    other = (f for f in sorted(tracked()) if re.search(r"\.(toml|lua|sql|ini|mako|in)$|^Makefile$|^\.ci/run$", f))
    for f in other:
        comments = [re.search(r"(?:^|\s)(?:#|--) .*", line) for line in source(f).splitlines()]
        found += [Prose(f, number, c[0]) for number, c in enumerate(comments, 1) if c]
    return found


@cache
def words() -> frozenset[str]:
    """Every word of code, file and folder."""
    known = {*re.findall(r"\w+", code())}
    for f in tracked():
        known |= {*re.findall(r"\w+", f)}
        if not f.endswith((".py", ".md", "/")):
            known |= {*re.findall(r"\w+", source(f))}
    return frozenset(known)


_CLASS = re.compile(r"^( *)class (\w+)(?:\[.*?\])?(?:\(([^)]*)\))?:((?:.*\n)(?:\1 .*\n|\n)*)", re.MULTILINE)
_STANDARD = {"Protocol", "Generic", "Exception", "object", "StrEnum", "Enum", "IntEnum", ""}


@cache
def classes() -> dict[str, frozenset[str]]:
    """Each class of the tree with the words of its body and its parents' bodies; empty if a parent is not from here."""
    found: dict[str, list[tuple[str, set[str]]]] = {}
    for _, name, parents, body in _CLASS.findall(code()):
        found.setdefault(name, []).append((parents, {*re.findall(r"\w+", body)}))

    def members(name: str, seen: frozenset[str]) -> frozenset[str]:
        known: set[str] = set()
        for parents, body in found[name]:
            known |= body
            for parent in (re.split(r"[\[.]", part.strip())[-1 if "." in part else 0] for part in parents.split(",")):
                if parent in found and parent not in seen:
                    inherited = members(parent, seen | {name})
                    if not inherited:
                        return inherited
                    known |= inherited
                elif parent not in _STANDARD and "=" not in parent:
                    return frozenset()
        return frozenset(known)

    return {name: members(name, frozenset()) for name in found}


@cache
def javas_classes() -> frozenset[str]:
    return frozenset(name for piece in everything() for name in _JAVAS_METHOD.findall(piece.text))


def missing_file(mention: str) -> str:
    """Why no file of the tree is meant; empty if one is."""
    path, line, test = re.fullmatch(r"([^:]+)(?::(\d+))?(?:::([\w.]+))?", mention).groups()  # type: ignore[union-attr]
    found = [f for f in tracked() if f == path or f.endswith(f"/{path}")]
    if not found:
        return f"there is no file {path}"
    if line and all(int(line) > source(f).count("\n") for f in found):
        return f"{path} is shorter than {line} lines"
    if test and not any(test.rsplit(".", 1)[-1] in re.findall(r"\w+", parts(f)[1]) for f in found):
        return f"{path} has no {test}"
    return ""


def missing_path(mention: str) -> str:
    """Why neither file nor folder is meant; a shell's `*` and `{a,b}` are understood."""
    pattern = re.escape(mention.rstrip("/")).replace(r"\*", "[^/]*")
    pattern = re.sub(r"\\\{(.*?)\\\}", lambda m: f"({m[1].replace(',', '|')})", pattern)
    return "" if any(re.fullmatch(pattern, f.rstrip("/")) for f in tracked()) else f"there is no {mention}"


def missing_module(mention: str) -> str:
    """Why a dotted name that begins with a package of this tree leads nowhere."""
    if f'"{mention}"' in code():
        return ""  # a logger, or a file
    names = mention.split(".")
    here = PACKAGES[names[0]] + names[0]
    for i, name in enumerate(names[1:], 1):
        if f"{here}/{name}/" in tracked() or f"{here}/{name}.py" in tracked():
            here = f"{here}/{name}"
            continue
        home = f"{here}.py" if f"{here}.py" in tracked() else f"{here}/__init__.py"
        if home in tracked() and all(n in re.findall(r"\w+", parts(home)[1]) for n in names[i : i + 1]):
            return ""
        return f"{'.'.join(names[:i])} has no {name}"
    return ""


def missing_name(mention: str) -> str:
    """Why a word with an inner `_` or hump, or `Class.member`, is no name of this tree."""
    if mention in _OTHERS.split() or re.match(r"[a-z]+[A-Z]", mention):
        return ""
    owner, dot, member = mention.partition(".")
    if owner not in words() and (_JAVA.search(owner) or owner in _OTHERS.split() or owner in javas_classes()):
        return ""
    if (
        dot
        and classes().get(owner)
        and not re.match(r"[a-z]+[A-Z]", member)
        and member.split(".")[0] not in classes()[owner]
    ):
        return f"{owner} has no {member}"
    return "" if owner in words() else f"nothing is named {owner}"


_FILE = re.compile(r"(?<![\w/.<>{}*@$~-])(?:[\w-]+/)*[\w-]+\.(?:py|lua|patch)\b(?::(?:\d+\b|:[\w.]+))?")
_PATH = re.compile(rf"(?<![\w/.<>{{}}*@$~-])(?:{'|'.join(TOPS)})/[\w*{{}},./-]*+(?!<)")
_MODULE = re.compile(rf"(?<![\w/.@-])(?:{'|'.join(PACKAGES)})(?:\.\w+)+(?!\w|[./]\w)")
_NAME = re.compile(
    r"(?<![\w./%$<{:*=&\\-])(?:[A-Za-z]\w*[a-z0-9]_[a-z0-9]\w*|[A-Z]\w*[a-z0-9][A-Z]\w*)(?:\.[a-z_]\w*)?"
)
_TAKEN = re.compile(r"\w+://\S+|\]\([^)]*\)|<!--.*?-->")


def _blanked(text: str, pattern: re.Pattern[str]) -> str:
    return pattern.sub(lambda m: " " * len(m[0]) if "\n" not in m[0] else m[0], text)


def astray(piece: Prose) -> Iterator[str]:
    text = _blanked(piece.text, _TAKEN)
    for pattern, missing in ((_FILE, missing_file), (_PATH, missing_path), (_MODULE, missing_module)):
        for found in pattern.finditer(text):
            if why := missing(found[0].rstrip(".,")):
                yield f"{piece.at(found.start())}: {why}"
        text = _blanked(text, pattern)
    for found in _NAME.finditer(text):
        if why := missing_name(found[0]):
            yield f"{piece.at(found.start())}: {why}"


def test_nothing_that_prose_names_is_gone() -> None:
    gone = [complaint for piece in everything() for complaint in astray(piece)]
    assert not gone, "names that lead nowhere:\n" + "\n".join(gone)


def test_no_link_leads_nowhere() -> None:
    gone = []
    for page in pages():
        for found in re.finditer(r"\]\(([^)#:\s]*)(?:#([^)]*))?\)", page.text):
            target = (ROOT / page.path).parent / found[1] if found[1] else ROOT / page.path
            if not target.exists():
                gone.append(f"{page.at(found.start())}: there is no {found[1]}")
            elif found[2] and found[2] not in anchors(target.read_text(encoding="utf-8")):
                gone.append(f"{page.at(found.start())}: {target.name} has no heading #{found[2]}")
    assert not gone, "\n".join(gone)


def anchors(page: str) -> set[str]:
    """Headings as GitHub names them."""
    headings = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_no_import_that_a_page_shows_fails() -> None:
    gone = [
        f"{page.at(found.start())}: {why}"
        for page in pages()
        for found in re.finditer(rf"^ *from ((?:{'|'.join(PACKAGES)})[\w.]*) import ([\w, ]+)", page.text, re.MULTILINE)
        for name in found[2].split(",")
        if (why := missing_module(f"{found[1]}.{name.split()[0]}"))
    ]
    assert not gone, "\n".join(gone)


def test_no_class_of_ours_is_taken_for_one_of_java() -> None:
    assert not sorted(name for name in classes() if _JAVA.search(name))


def test_a_name_that_is_gone_is_found() -> None:
    prose = "See reconciler/policy/nowhere.py, `nowhere.py:3`, reconciler.policy.nowhere, Nowhere_else, AnswerToAll,\n"
    prose += (
        "tests/nowhere/, `SqlOutbox.under_the_bed` and `took_off_hat`; `errors.py:99999`; not Validators.checkTopic."
    )
    found = list(astray(Prose("page.md", 1, prose)))
    assert len(found) == 9
    assert found[0] == "page.md:1: there is no file reconciler/policy/nowhere.py"

"""The parts of runbooks that are written, not typed: how to run a command, and every cause of a time that stands still.

A part stands between two remarks of its name, such as `<!-- prefix -->` and `<!-- /prefix -->`. What a cause says is
taken from the catalogue: the words by which a person finds it in a line of `status`.
"""

# ruff: noqa: RUF001  (Chinese punctuation)

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from reconciler.commands.status import accounting
from reconciler.contract.answers import PROBE_TOPIC_MISSING
from reconciler.contract.facts import Code
from reconciler.telling import account, undecided_keys
from reconciler.words.catalogue import ENGLISH, sentences

DOCS = Path(__file__).parent
FOLDERS = {"en": DOCS / "runbooks", "zh": DOCS / "zh/runbooks"}
#: Whose part `prefix` the others repeat.
SOURCES = {"en": DOCS / "how-to/on-call.md", "zh": DOCS / "zh/how-to/on-call.md"}
HEADINGS = {"en": ("it says", "do"), "zh": ("显示", "处理")}
_PART = re.compile(r"<!-- (prefix|causes) -->\n(?:.*?\n)??<!-- /\1 -->", re.DOTALL)
_FIELD = re.compile(r"\{\w+\}")

#: Codes -> what a person does, in English and Chinese. A test knows that every cause of a late account is here. Words that
#: contain those of another row come first: who looks a line up stops at the first row that fits.
CAUSES: Sequence[tuple[Sequence[Code], str, str]] = (
    (
        (account.SWEPT_LAST, account.UNANNOUNCED),
        "[Start `sweep`](../how-to/start-and-stop.md), or read `problems` in its log",
        "[启动 `sweep`](../how-to/start-and-stop.md)。`sweep` 在运行：看它日志中的 `problems`",
    ),
    (
        (account.CLOCK_SET_BACK,),
        "Set that database's clock right (NTP)",
        "校正该数据库的时钟（NTP）",
    ),
    (
        (account.UNREADABLE_TIME,),
        "Its owner sets the commit's time",
        "由其属主把记录的时间改为提交时间",
    ),
    (
        (accounting.OUTBOX_SILENT,),
        "Start the database, or correct what it names",
        "启动数据库，或改正所指的问题",
    ),
    (
        (account.QUEUE_NOT_TAKEN, account.QUEUE_WAITS, account.QUEUE_CUT, account.QUEUE_EXPIRED),
        (
            "Start `run`, or read its log. `no process reads that queue`: set `AnnouncementRoute(queues=...)` in the producer "
            "to `unique_key_topic.queues` in the settings"
        ),
        (
            "启动 `run`。如果在运行，看它的日志。如果该行写着 `no process reads that queue`，说明生产者通告所用的队列数多于对账器："
            "把生产者的 `AnnouncementRoute(queues=...)` 改为对账器设置中的 `unique_key_topic.queues`"
        ),
    ),
    ((accounting.NO_TOPIC, PROBE_TOPIC_MISSING), "Run the command that it names", "执行其中的命令"),
    (
        (accounting.ANNOUNCEMENTS_UNREADABLE, accounting.NO_OFFSETS, accounting.QUEUE_UNREADABLE),
        "Start the broker, unless it is [lost for good](../how-to/recover.md#a-broker-is-lost-for-good)",
        "启动该 Broker。只有不会再恢复时：[永久丢失](../how-to/recover.md#某个-broker-永久丢失)",
    ),
    (
        (account.NO_ROUND_BESIDE_OTHERS,),
        "Correct topic and group in `[[subscriptions]]`; restart `run`",
        "改正 `[[subscriptions]]` 中的主题和消费组；重启 `run`",
    ),
    (
        (account.NO_ROUND, account.SHARDS_WITHOUT_ROUND, account.LAST_ROUND, account.MEMORY_LOST),
        "[Start `run`](../how-to/start-and-stop.md), or read `turn_skipped` in its log",
        "[启动 `run`](../how-to/start-and-stop.md)。`run` 在运行：看它日志中的 `turn_skipped`",
    ),
    (
        (account.UNKNOWN_ENVIRONMENT,),
        "In the settings, put back the ledger's `environment`",
        "在设置中改回账本中已有的 `environment`",
    ),
    (
        (accounting.SHARD_STOPPED,),
        "End the other program that writes this key",
        "另一个程序在写该行指出的键：停止那个程序",
    ),
    (
        (account.NO_VERDICT,),
        "See `turn_skipped` in the log of `run`; else raise `rounds.candidates_max`",
        "看 `run` 日志中的 `turn_skipped`。没有：调大 `rounds.candidates_max`",
    ),
    (
        (account.UNHEARD,),
        "Set the service's `AnnouncementRoute` to topic and `queues` of `[unique_key_topic]`",
        "让服务的 `AnnouncementRoute`，主题和 `queues` 与设置中的 `[unique_key_topic]` 相同",
    ),
    (
        (undecided_keys.KEY, undecided_keys.KEYS, account.NOT_REVIEWED, account.NOT_REVIEWED_KEYS),
        (
            "Start what the line or `reconciler explain KEY` names, or "
            "[look it up](../how-to/troubleshooting.md#keys-stay-unknown)"
        ),
        (
            "启动该行或 `reconciler explain KEY` 指出的证据源，或见"
            "[键一直是 UNKNOWN](../how-to/troubleshooting.md#键一直是-unknown)"
        ),
    ),
)
#: What is said by a line that has no words of its own.
TYPED = {
    "en": (
        "| `away:` | Start what the line names; for Redis, ask `reconciler doctor` |",
        "| `not proved to be a primary` | Point the URL at the primary |",
    ),
    "zh": (
        "| `away:` | 启动该行指出的依赖。Redis 怎么处理，`reconciler doctor` 会说明 |",
        "| `not proved to be a primary` | 让 URL 指向主库 |",
    ),
}


def causes(language: str) -> Iterator[str]:
    """The table of causes: words of the line, what to do."""
    yield f"| {' | '.join(HEADINGS[language])} |"
    yield "|---|---|"
    for codes, *does in CAUSES:
        others = [_sentence(other) for row, *_ in CAUSES if row is not codes for other in row]
        found = dict.fromkeys(words(_sentence(code), others) for code in codes)
        quoted = [f"`{one}`" for one in found if not any(other != one and other in one for other in found)]
        yield f"| {(', ' if language == ENGLISH else '、').join(quoted)} | {does[language != ENGLISH]} |"
    yield from TYPED[language]


def _sentence(code: Code) -> str:
    """Commands speak English, so Chinese pages quote it, too."""
    return sentences(ENGLISH)[code.name]


def words(sentence: str, others: Sequence[str]) -> str:
    """Its longest stretch without a field, before the question what to do, that the fewest of the others have."""
    told = sentence.split(": ")
    before = told[:-1] if len(told) > 1 else told
    stretches = [one.strip(" ,;='") for part in before for one in _FIELD.split(part)]
    return min(filter(None, stretches), key=lambda one: (sum(one in other for other in others), -len(one)))


@cache
def _prefix(language: str) -> str:
    text = SOURCES[language].read_text(encoding="utf-8")
    return next(found[0] for found in _PART.finditer(text) if found[1] == "prefix")


def written(text: str, language: str) -> str:
    """A runbook with its parts as they are."""

    def part(found: re.Match[str]) -> str:
        if found[1] == "prefix":
            return _prefix(language)
        return "\n".join(("<!-- causes -->", *causes(language), "<!-- /causes -->"))

    return _PART.sub(part, text)


def pages() -> Iterator[tuple[Path, str]]:
    """Every runbook and its language."""
    for language, folder in FOLDERS.items():
        yield from ((page, language) for page in sorted(folder.glob("*.md")))

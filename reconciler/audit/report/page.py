"""The HTML report: one file that opens offline, loads nothing, and is complete without scripts.

The policy in its head forbids every request; only the style and the script inside of the file itself, named by
their digests, are allowed. The same judgement gives the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from reconciler.audit.report.figures import latency_section, outcome_section, top_section, volume_section
from reconciler.audit.report.findings import others_section, violations_section
from reconciler.audit.report.markup import Markup, name, tag
from reconciler.audit.report.tables import table, table_row
from reconciler.audit.report.verdict import checked_section, figures_section, verdict_section
from reconciler.audit.report.words import counted, moment, number
from reconciler.audit.result.classes import RULES
from reconciler.audit.result.documents import rules_document
from reconciler.audit.result.values import EngineKind, InputFile, JudgedWindow

_TITLES = {"clean": "No violation", "violations": "Violations", "no answer": "No answer"}
_CONTENTS: Mapping[str, str] = {
    "checked": "What was checked",
    "violations": "Violations",
    "volume": "Volume",
    "outcomes": "Outcomes",
    "latency": "Latency",
    "top": "Topics and groups",
    "inputs": "Inputs",
    "rules": "Rules",
}


def report_html(judged: JudgedWindow, *, zone: str = "UTC", engine: EngineKind = "spark") -> bytes:
    """The whole page, UTF-8. `zone`: the window is shown as its clocks show it, too. `engine`: where it was judged."""
    body = tag(
        "body",
        tag("a", "To the violations", href="#violations", class_="skip"),
        tag(
            "main",
            verdict_section(judged, zone, engine),
            figures_section(judged),
            _contents(),
            checked_section(judged),
            violations_section(judged),
            others_section(judged),
            volume_section(judged),
            outcome_section(judged),
            latency_section(judged),
            top_section(judged),
            _inputs_section(judged),
            _rules_section(),
        ),
        _footer(),
        tag("script", _own("report.js")),
    )
    page = Markup("<!DOCTYPE html>\n") + tag("html", _head(judged), body, lang="en")
    return (page + "\n").encode("utf-8")


def _head(judged: JudgedWindow) -> Markup:
    sources = {kind: _source(_own(file)) for kind, file in (("style", "report.css"), ("script", "report.js"))}
    policy = (
        f"default-src 'none'; style-src {sources['style']}; script-src {sources['script']}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    window = f"{moment(judged.window.start_ms)} to {moment(judged.window.end_ms)}"
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        # Without an icon of its own the page would make a browser ask for one.
        tag("link", rel="icon", href="data:,"),
        tag("title", f"{_TITLES[judged.verdict]}: audit of {judged.environment}, {window}"),
        tag("style", _own("report.css")),
    )


@cache
def _own(file: str) -> Markup:
    return Markup(files("reconciler.audit.report").joinpath("templates", file).read_text(encoding="utf-8"))


def _source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _contents() -> Markup:
    links = (tag("li", tag("a", words, href=f"#{target}")) for target, words in _CONTENTS.items())
    return tag("nav", tag("ul", *links), aria_label="Contents")


def _inputs_section(judged: JudgedWindow) -> Markup:
    """Rows by table, files by folder; each file's digest is in result.json."""
    folders: dict[str, list[InputFile]] = {}
    for file in judged.inputs:
        parts = file.path.split("/")
        folder = "/".join(parts[: 2 if parts[0] == "history" else 1])
        folders.setdefault(folder, []).append(file)
    columns = (("Input", ""), ("Files", "n"), ("Rows", "n"), ("SHA-256", ""))
    rows = [
        table_row(
            columns,
            name(folder),
            number(len(mine)),
            number(sum(max(0, file.rows) for file in mine)),
            tag("code", mine[0].sha256) if len(mine) == 1 else f"{number(len(mine))} digests",
        )
        for folder, mine in sorted(folders.items())
    ]
    shown = table(f"{counted(len(judged.inputs), 'file')} read", columns, rows)
    return tag(
        "section",
        tag("h2", "Inputs"),
        tag("p", "Doubled rows are counted here and judged once. Each file's digest is in result.json."),
        shown if rows else tag("p", "No input file was read.", class_="warn"),
        id="inputs",
    )


def _rules_section() -> Markup:
    columns = (("Class", ""), ("Rule", "text"), ("For example", "text"), ("Counts as", ""))
    rows = [
        table_row(
            columns,
            (f"{rule.number}. ", tag("code", rule.name)),
            rule.rule,
            rule.example,
            "violation" if rule.violation else ("listed" if rule.listed else "counted"),
        )
        for rule in RULES
    ]
    version = rules_document()
    return tag(
        "section",
        tag("h2", "Rules"),
        table("In this order; the first rule that matches decides", columns, rows),
        tag("p", f"Version {version['version']}, SHA-256 ", tag("code", version["sha256"])),
        id="rules",
    )


def _footer() -> Markup:
    parts = (
        "Made from the inputs alone: auditing the same evidence again, on the same engine, gives the same bytes, ",
        "here and in every file beside. Whether a file was altered since: ",
        tag("code", "reconciler statement verify OUT --public-key FILE --evidence DIR"),
        ". One message's life: ",
        tag("code", "reconciler explain KEY"),
        ".",
    )
    return tag("footer", tag("p", *parts))

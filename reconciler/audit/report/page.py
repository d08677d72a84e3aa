"""Makes the HTML report. It is one file that opens offline, loads nothing, and is complete without scripts.

The content policy in the page's head forbids every request. The policy allows only the style and the script inside of
the file, by digest. The same judgement gives the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files

from reconciler.audit.report.figures import latency_section, outcome_section, top_section, volume_section
from reconciler.audit.report.findings import others_section, violations_section
from reconciler.audit.report.markup import Markup, name, tag
from reconciler.audit.report.tables import table, table_row
from reconciler.audit.report.texts import Texts
from reconciler.audit.report.verdict import checked_section, figures_section, title_of, verdict_section
from reconciler.audit.report.words import moment, number
from reconciler.audit.result.classes import RULES
from reconciler.audit.result.documents import rules_document
from reconciler.audit.result.values import EngineKind, InputFile, JudgedWindow
from reconciler.words.catalogue import ENGLISH

_CONTENTS = ("checked", "violations", "volume", "outcomes", "latency", "top", "inputs", "rules")


def report_html(
    judged: JudgedWindow, *, zone: str = "UTC", engine: EngineKind = "spark", language: str = ENGLISH
) -> bytes:
    """Makes the whole page, in UTF-8.

    `zone`: time zone in which the window is shown besides UTC.
    `engine`: engine that has judged.
    `language`: one of words.LANGUAGES.
    """
    texts = Texts(language)
    script = _script(texts)
    body = tag(
        "body",
        tag("a", texts("to-violations"), href="#violations", class_="skip"),
        tag(
            "main",
            verdict_section(judged, zone, engine, texts),
            figures_section(judged, texts),
            _contents(texts),
            checked_section(judged, texts),
            violations_section(judged, texts),
            others_section(judged, texts),
            volume_section(judged, texts),
            outcome_section(judged, texts),
            latency_section(judged, texts),
            top_section(judged, texts),
            _inputs_section(judged, texts),
            _rules_section(texts),
        ),
        _footer(texts),
        tag("script", script),
    )
    page = Markup("<!DOCTYPE html>\n") + tag("html", _head(judged, script, texts), body, lang=language)
    return (page + "\n").encode("utf-8")


def _script(texts: Texts) -> Markup:
    """Reads the script. The only sentence of the script is in the page's language."""
    places = {"shown": "${shown}", "whole": "${rows.length}"}
    written = Texts(ENGLISH)("filter.shown", **places)
    return Markup(_own("report.js").replace(written, texts("filter.shown", **places)))


def _head(judged: JudgedWindow, script: Markup, texts: Texts) -> Markup:
    sources = {"style": _source(_own("report.css")), "script": _source(script)}
    policy = (
        f"default-src 'none'; style-src {sources['style']}; script-src {sources['script']}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    title = texts(
        "page-title",
        verdict=title_of(judged, texts),
        environment=judged.environment,
        start=moment(judged.window.start_ms),
        end=moment(judged.window.end_ms),
    )
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        # If the page had no icon, a browser would request one.
        tag("link", rel="icon", href="data:,"),
        tag("title", title),
        tag("style", _own("report.css")),
    )


@cache
def _own(file: str) -> Markup:
    return Markup(files("reconciler.audit.report").joinpath("templates", file).read_text(encoding="utf-8"))


def _source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _contents(texts: Texts) -> Markup:
    links = (tag("li", tag("a", texts(f"section.{target}"), href=f"#{target}")) for target in _CONTENTS)
    return tag("nav", tag("ul", *links), aria_label=texts("contents"))


def _inputs_section(judged: JudgedWindow, texts: Texts) -> Markup:
    """Lists files and rows by folder. result.json has each file's digest."""
    folders: dict[str, list[InputFile]] = {}
    for file in judged.inputs:
        parts = file.path.split("/")
        folder = "/".join(parts[: 2 if parts[0] == "history" else 1])
        folders.setdefault(folder, []).append(file)
    columns = (
        (texts("column.input"), ""),
        (texts("column.files"), "n"),
        (texts("column.rows"), "n"),
        ("SHA-256", ""),
    )
    rows = [
        table_row(
            columns,
            name(folder),
            number(len(mine)),
            number(sum(max(0, file.rows) for file in mine)),
            tag("code", mine[0].sha256) if len(mine) == 1 else texts("inputs.digests", number=number(len(mine))),
        )
        for folder, mine in sorted(folders.items())
    ]
    shown = table(texts("inputs.read", files=texts.counted(len(judged.inputs), "file")), columns, rows)
    return tag(
        "section",
        tag("h2", texts("section.inputs")),
        tag("p", texts("inputs.lead")),
        shown if rows else tag("p", texts("inputs.none"), class_="warn"),
        id="inputs",
    )


def _rules_section(texts: Texts) -> Markup:
    columns = (
        (texts("column.class"), ""),
        (texts("column.rule"), "text"),
        (texts("column.example"), "text"),
        (texts("column.counts-as"), ""),
    )
    rows = [
        table_row(
            columns,
            (f"{rule.number}. ", tag("code", rule.name)),
            texts(f"rule.{rule.name}"),
            texts(f"example.{rule.name}"),
            texts(f"counts-as.{'violation' if rule.violation else 'listed' if rule.listed else 'counted'}"),
        )
        for rule in RULES
    ]
    version = rules_document()
    return tag(
        "section",
        tag("h2", texts("section.rules")),
        table(texts("rules.order"), columns, rows),
        tag("p", texts.marked("rules.version", number=version["version"], digest=tag("code", version["sha256"]))),
        id="rules",
    )


def _footer(texts: Texts) -> Markup:
    verify = tag("code", "reconciler statement verify OUT --public-key FILE --evidence DIR")
    explain = tag("code", "reconciler explain KEY")
    return tag("footer", tag("p", texts.marked("footer", verify=verify, explain=explain)))

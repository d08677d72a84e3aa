"""Completion of commands, options and values: a word that is offered is one that the command takes."""

from __future__ import annotations

import argparse

import pytest

from reconciler.audit.arguments import command_line
from reconciler.cli import audit_command
from reconciler.cli.app import run


def completed(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What bash is told for a line that ends where the cursor is."""
    monkeypatch.setenv("_RECONCILER_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
    with pytest.raises(SystemExit):
        run([])
    return capsys.readouterr().out.split()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("reconciler sta", ["status", "statement"]),
        ("reconciler config ch", ["check"]),
        ("reconciler status --ro", ["--rounds-within"]),
        ("reconciler list --verdict L", ["LAGGING", "LOST_CONFIRM"]),
        ("reconciler db upgrade o", ["outbox"]),
        ("reconciler audit --en", ["--engine"]),
        ("reconciler audit --out DIR --engine ", ["spark", "here"]),
        ("reconciler audit --out ", []),
        ("reconciler statement ", ["verify", "keygen"]),
        ("reconciler statement verify DIR --pub", ["--public-key"]),
        ("reconciler statement keygen FILE -o j", ["json"]),
    ],
)
def test_the_words_that_fit_are_offered(
    line: str, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert completed(line, monkeypatch, capsys) == words


def commands(whole: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Parsers by the words that lead to them."""
    found: dict[str, argparse.ArgumentParser] = {}
    for action in whole._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                found |= {name: below} | {f"{name} {inner}": one for inner, one in commands(below).items()}
    return found


def test_what_completes_is_what_the_audit_reads() -> None:
    by_name = commands(command_line())
    del by_name["package"]  # `python -m reconciler.audit package`: no command of `reconciler`
    assert audit_command.WORDS.keys() == by_name.keys()
    for name, words in audit_command.WORDS.items():
        options = {text: action for action in by_name[name]._actions for text in action.option_strings}
        actions = [one for one in by_name[name]._actions if isinstance(one, argparse._SubParsersAction)]
        assert set(words) == options.keys() | {word for one in actions for word in one.choices}
        for text, action in options.items():
            assert audit_command.VALUES.get(text, ()) == tuple(action.choices or ())
            assert audit_command.takes_value(text) == (action.nargs != 0)

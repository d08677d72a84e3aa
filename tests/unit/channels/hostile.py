"""Texts that try to break out of their place."""

from __future__ import annotations

from hypothesis import strategies as st

TRICKS = (
    "@all",
    "@所有人",
    "<@all>",
    "<@U123>",
    "<!channel>",
    "<!here|x>",
    "<at id=all></at>",
    '<at user_id="all">x</at>',
    "[Open the console](http://evil.example)",
    "![x](http://evil.example/x.png)",
    "<http://evil.example|x>",
    "<https://evil.example>",
    '<a href="http://evil.example">x</a>',
    "<script>x</script>",
    '<font color="warning">x</font>',
    "http://evil.example",
    "www.evil.example",
    "\n# Forged",
    "\n\nSince: never",
    "\r\nBcc: evil@example.com",
    "\r\n.\r\nMAIL FROM:<x>",
    "\u2028x",
    "\x85x",
    "\x0bx",
    "`code`",
    "```\nx\n```",
    "**bold**",
    "__x__",
    "_x_",
    "~~x~~",
    "*",
    "\\",
    "\\*",
    "&lt;@all&gt;",
    "&#64;all",
    "&amp;",
    "|",
    "> x",
    "- x",
    "1. x",
    "{label}",
    "{0.__class__}",
    "%0a",
    "\u202e",
    "\ud800",
    "\x00",
    "\ufeff",
    "😀",
    "消息",
    ":smile:",
    "=?utf-8?q?x?=",
    '"}',
    " ",
)


def hostile_texts() -> st.SearchStrategy[str]:
    """Tricks and any characters, joined; some are long."""
    part = st.one_of(st.sampled_from(TRICKS), st.text(max_size=20), st.text(alphabet="\\`*_[]()<>&@!|~#", max_size=12))
    long = st.tuples(st.sampled_from(TRICKS), st.integers(1, 200)).map(lambda pair: pair[0] * pair[1])
    return st.one_of(st.lists(part, max_size=8).map("".join), long)

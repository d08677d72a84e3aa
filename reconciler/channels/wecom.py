"""WeCom (企业微信): the message push of a group, formerly the group robot.

Sources: developer.work.weixin.qq.com, "Message push configuration" (document/path/91770 and 99110).
- Request: POST of JSON to https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=...
- Limits: 4096 bytes of UTF-8 in `markdown.content`, and 20 messages per minute.
- Mention: `<@userid>` in `markdown.content` mentions a member. Numbers in answers, from "Global error codes"
  (document/path/90313). A program must use the number, not the words:
- 0: success.
- -1 and 6000: try again.
- 45009: limit of calls.
- 45033: limit of calls at once.
- 93000: unknown key.

The documented Markdown has headings, bold, links, code, quotes and colours of a font, but no escape. So a character
that could begin markup is replaced by its full-width form. No client takes this form for markup. An underscore within a
word stays, so that names of topics can be copied.
"""

from __future__ import annotations

import json
import re

from reconciler.channels.answers import AnswerRule, CodedAnswers
from reconciler.channels.platform_channel import PlatformChannel, PlatformMessage
from reconciler.channels.texts import NoticeText

#: Pause after which a limit per minute has passed.
_MINUTE_SECONDS = 60.0
_SPECIAL = re.compile(r"[<>\[\]`*@&\\~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
#: Distance from an ASCII character to its form of full width.
_FULL_WIDTH_OFFSET = 0xFEE0

ANSWERS = CodedAnswers(
    platform="WeCom",
    code_names=("errcode",),
    words_name="errmsg",
    rules=(
        *(AnswerRule(code=code, pause_seconds=_MINUTE_SECONDS) for code in (-1, 6000, 45009, 45033)),
        AnswerRule(
            code=93000,
            remedy="no message push has the key in url of notifier {name}: copy its address again from the group",
        ),
    ),
    remedy="compare url of notifier {name} with the address that WeCom shows in the group",
)


class WeComChannel(PlatformChannel):
    """One message push."""

    answers = ANSWERS

    def _request(self, url: str, message: PlatformMessage) -> tuple[str, bytes]:
        return url, wecom_body(message.text)


def wecom_body(text: NoticeText) -> bytes:
    """Makes the message."""
    lines = [f"**{escape_wecom(text.title)}**", *map(escape_wecom, text.lines)]
    lines += [f"[{escape_wecom(label)}]({link})" for label, link in text.links]
    return json.dumps({"msgtype": "markdown", "markdown": {"content": "\n".join(lines)}}, ensure_ascii=False).encode()


def escape_wecom(line: str) -> str:
    """Escapes one line, so that nothing in it is markup."""
    return _SPECIAL.sub(lambda found: chr(ord(found[0]) + _FULL_WIDTH_OFFSET), line)

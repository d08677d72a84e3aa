"""DingTalk (钉钉): a custom robot of a group.

Sources: open.dingtalk.com, "Custom robot access" (document/robots/custom-robot-access) and "Security settings of custom
robots" (document/robots/customize-robot-security-settings): POST of JSON in UTF-8 to
https://oapi.dingtalk.com/robot/send?access_token=...; with a secret, `timestamp` (milliseconds, at most an hour off)
and `sign` = urlencode(base64(HMAC-SHA256(secret, timestamp + "\\n" + secret))) follow in the query. The answer is a 200
with `errcode` and `errmsg`. 20 messages per minute; after more of them the robot accepts none for ten minutes.

Numbers: 310000 stands for each of the security settings, and its words say which one, in English or Chinese (keywords
not in content, sign not match, invalid timestamp, ip not in whitelist); 300001 and 300005 "token is not exist"
(timonwong/prometheus-webhook-dingtalk, issues 91 and 226); 130101 "send too fast, exceed 20 times per minute"
(ccfos/nightingale, issue 369); the first page lists 400013, 400101, 400102, 400106 and 410100 (too fast); -1 is the
"system busy" of the global codes.

Markdown: headings, quotes, bold, italic, links, images and lists are documented. Clients take backslashes before
punctuation and HTML's entities: the template of timonwong/prometheus-webhook-dingtalk escapes with them. A mention
needs the member `at`, which is sent empty.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from urllib.parse import quote_plus

from reconciler.channels.answers import AnswerRule, CodedAnswers
from reconciler.channels.platform_channel import PlatformChannel, PlatformMessage
from reconciler.channels.texts import NoticeText

#: How long the robot accepts no message after more than 20 per minute.
SILENCE_SECONDS = 600.0
_SPECIAL = re.compile(r"[\\`*_\[\]]")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&#34;", "@": "&#64;", "~": "&#126;"}

_NO_ROBOT = "create the robot again, or correct url of notifier {name}: its access_token is unknown"
ANSWERS = CodedAnswers(
    platform="DingTalk",
    code_names=("errcode",),
    words_name="errmsg",
    rules=(
        AnswerRule(code=-1, pause_seconds=60.0),
        AnswerRule(code=130101, pause_seconds=SILENCE_SECONDS),
        AnswerRule(code=410100, pause_seconds=SILENCE_SECONDS),
        AnswerRule(
            code=310000,
            words=("keyword", "关键词"),
            remedy="the robot wants a keyword that is not in the text: choose the signature instead in its security "
            "settings, and write its secret as secret of notifier {name}",
        ),
        AnswerRule(
            code=310000,
            words=("invalid timestamp", "过期"),
            remedy="the clock of this machine is more than an hour off: synchronise it",
        ),
        AnswerRule(
            code=310000,
            words=("whitelist", "白名单"),
            remedy="add the address of this machine to the robot's security settings",
        ),
        AnswerRule(
            code=310000,
            remedy="secret of notifier {name} is not that of the robot (SEC...), or the robot's security settings "
            "want something else than a signature",
        ),
        *(AnswerRule(code=code, remedy=_NO_ROBOT) for code in (300001, 300005, 400101, 400102, 400106)),
        AnswerRule(code=400013, remedy="the group of the robot was dissolved: give notifier {name} the url of another"),
    ),
    remedy="compare url and secret of notifier {name} with the robot's page in DingTalk",
)


class DingTalkChannel(PlatformChannel):
    """One robot. Its secret begins with SEC."""

    answers = ANSWERS

    def _request(self, url: str, message: PlatformMessage) -> tuple[str, bytes]:
        if message.secret is not None:
            sign = dingtalk_sign(message.secret, message.at_ms)
            url += f"{'&' if '?' in url else '?'}timestamp={message.at_ms}&sign={sign}"
        return url, dingtalk_body(message.text)


def dingtalk_sign(secret: str, at_ms: int) -> str:
    """Computes the value of `sign`, encoded for a URL."""
    digest = hmac.digest(secret.encode(), f"{at_ms}\n{secret}".encode(), hashlib.sha256)
    return quote_plus(base64.b64encode(digest))


def dingtalk_body(text: NoticeText) -> bytes:
    """Makes the message. Empty lines separate its lines, because clients join lines that merely follow each other."""
    lines = [f"### {escape_dingtalk(text.title)}", *map(escape_dingtalk, text.lines)]
    lines += [f"[{escape_dingtalk(label)}]({link})" for label, link in text.links]
    # clients show the title in the list of conversations, unformatted
    markdown = {"title": text.title, "text": "\n\n".join(lines)}
    at = {"atMobiles": [], "atUserIds": [], "isAtAll": False}
    return json.dumps({"msgtype": "markdown", "markdown": markdown, "at": at}, ensure_ascii=False).encode()


def escape_dingtalk(line: str) -> str:
    """Escapes one line, so that nothing in it is markup."""
    return "".join(
        _ENTITIES.get(character) or (f"\\{character}" if _SPECIAL.match(character) else character) for character in line
    )

"""Slack: an incoming webhook.

Sources: docs.slack.dev, "Sending messages using incoming webhooks", "Formatting message text", "Text object" and "Rate
limits"; api.slack.com/changelog/2016-05-17-changes-to-errors-for-incoming-webhooks.
- Request: POST of JSON to https://hooks.slack.com/services/...
- Success: status 200 with the body `ok`.
- Refusal: status 400, 403, 404 or 410 with one word in the body.
- Limit: about one message per second. Above the limit, Slack answers with status 429 and Retry-After. `&`, `<` and `>`
  are the control characters of each text, and are written as entities. A text object of the type `plain_text` has no
  other markup, and with `emoji: false` no emoji. A text has at most 3000 characters, and a header 150. `verbatim` keeps
  a mrkdwn text from making links by itself.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from reconciler.channels.answers import shown_words
from reconciler.channels.http_post import HttpAnswer
from reconciler.channels.platform_channel import PlatformChannel, PlatformMessage
from reconciler.channels.texts import NoticeText
from reconciler.contract.secret import Secret
from reconciler.errors import ChannelAway, ChannelRefused

TEXT_CHARACTERS_MAX = 3_000
HEADER_CHARACTERS_MAX = 150
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_WEBHOOK = (
    "create the webhook again on the app's page (Incoming Webhooks), and write its address as url of notifier {name}"
)
#: Word in the body -> what a person must fix.
_REMEDIES = {
    "no_service": _WEBHOOK,
    "no_service_id": _WEBHOOK,
    "no_team": _WEBHOOK,
    "no_active_hooks": _WEBHOOK,
    "invalid_token": _WEBHOOK,
    "team_disabled": _WEBHOOK,
    "channel_not_found": "the channel was deleted: choose another for the webhook, and correct url of notifier {name}",
    "channel_is_archived": "the channel is archived: restore it, or give notifier {name} the url of another webhook",
    "action_prohibited": "an administrator of the workspace does not let this webhook post: ask for it",
    "posting_to_general_channel_denied": "the webhook must not post to the general channel: choose another channel",
}


class SlackAnswers:
    """Answers of Slack: `ok`, or one word."""

    def require_taken(self, answer: HttpAnswer, *, name: str, hidden: Sequence[Secret]) -> None:
        """Checks the answer, as Answers.require_taken describes."""
        word = answer.body[:TEXT_CHARACTERS_MAX].decode("utf-8", "replace").strip()
        if answer.status == 200 and word == "ok":
            return
        found = f"Slack answered notifier {name} with status {answer.status}"
        if shown := shown_words(word, hidden):
            found += f" ({shown})"
        if answer.may_pass:
            raise ChannelAway(found, retry_after_seconds=answer.retry_after_seconds)
        if 200 <= answer.status < 300:
            raise ChannelAway(found, remedy="is its url the address that Slack gave?")
        remedy = _REMEDIES.get(word, "compare url of notifier {name} with the app's page in Slack")
        raise ChannelRefused(found, remedy=remedy.format(name=name))


class SlackChannel(PlatformChannel):
    """One webhook."""

    answers = SlackAnswers()

    def _request(self, url: str, message: PlatformMessage) -> tuple[str, bytes]:
        return url, slack_body(message.text)


def slack_body(text: NoticeText) -> bytes:
    """Makes the message: blocks, and the text that desktop notifications show instead."""
    title = _plain(text.title)
    has_header = len(title["text"]) <= HEADER_CHARACTERS_MAX
    blocks: list[dict[str, Any]] = [{"type": "header" if has_header else "section", "text": title}]
    blocks += [{"type": "section", "text": _plain(part)} for part in _parts(text)]
    for label, link in text.links:
        told = f"<{escape_slack(link)}|{escape_slack(label)}>"
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": told, "verbatim": True}})
    message = {
        "text": escape_slack(text.title),
        "mrkdwn": False,
        "link_names": False,
        "unfurl_links": False,
        "unfurl_media": False,
        "blocks": blocks,
    }
    return json.dumps(message, ensure_ascii=False).encode()


def _parts(text: NoticeText) -> list[str]:
    parts = (text.what, "\n".join(text.facts), text.next_step, "\n".join(text.references))
    return [part for part in parts if part]


def _plain(line: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": escape_slack(line), "emoji": False}


def escape_slack(line: str) -> str:
    """Escapes text, so that nothing in it is markup of a `plain_text`."""
    return line.translate(_ENTITIES)

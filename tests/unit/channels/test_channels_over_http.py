"""What platforms receive, byte by byte, and what each of their answers means: a 200 alone delivers nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from reconciler.channels.answers import WORDS_CHARACTERS_MAX, shown_words
from reconciler.channels.dingtalk import SILENCE_SECONDS, DingTalkChannel, dingtalk_sign
from reconciler.channels.feishu import FeishuChannel, feishu_sign
from reconciler.channels.http_post import HttpPost
from reconciler.channels.slack import SlackChannel
from reconciler.channels.texts import NoticeTexts
from reconciler.channels.wecom import WeComChannel
from reconciler.contract.secret import SecretText
from reconciler.contract.tables import NoticeKind
from reconciler.errors import ChannelAway, ChannelRefused
from reconciler.telling.ports.notices import NoticeChannel
from tests.services.certificates import Authority
from tests.unit.channels.notices import AT_MS, CONSOLE_URL, assert_golden, notice
from tests.unit.channels.receiver import Receiver, Reply, receiving

TOKEN = "f3b1c0de5eca11ab1e"
SECRET = "SEC000000000000000000000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    name: str
    path: str
    success: bytes
    make: Callable[[SecretText, NoticeTexts, HttpPost], NoticeChannel]

    def channel(
        self, receiver: Receiver, reply: Reply | None = None, *, language: str = "en", seconds: float = 10.0
    ) -> NoticeChannel:
        """To the receiver, which answers so; None: that it has taken the message."""
        answer = reply or Reply(status=200, body=self.success)
        receiver.answer = lambda _: answer
        texts = NoticeTexts(language, zone="Asia/Shanghai", console_url=CONSOLE_URL)
        return self.make(SecretText(self.url(receiver)), texts, HttpPost(name="ops", total_seconds=seconds))

    def url(self, receiver: Receiver) -> str:
        return receiver.url.removesuffix("/hook") + self.path


PLATFORMS = (
    Platform(
        name="dingtalk",
        path=f"/robot/send?access_token={TOKEN}",
        success=b'{"errcode":0,"errmsg":"ok"}',
        make=lambda url, texts, post: DingTalkChannel(
            name="ops", url=url, secret=SecretText(SECRET), texts=texts, post=post
        ),
    ),
    Platform(
        name="feishu",
        path=f"/open-apis/bot/v2/hook/{TOKEN}",
        success=b'{"StatusCode":0,"StatusMessage":"success","code":0,"data":{},"msg":"success"}',
        make=lambda url, texts, post: FeishuChannel(
            name="ops", url=url, secret=SecretText(SECRET), texts=texts, post=post
        ),
    ),
    Platform(
        name="wecom",
        path=f"/cgi-bin/webhook/send?key={TOKEN}",
        success=b'{"errcode":0,"errmsg":"ok"}',
        make=lambda url, texts, post: WeComChannel(name="ops", url=url, texts=texts, post=post),
    ),
    Platform(
        name="slack",
        path=f"/services/T0/B0/{TOKEN}",
        success=b"ok",
        make=lambda url, texts, post: SlackChannel(name="ops", url=url, texts=texts, post=post),
    ),
)
BY_NAME = {platform.name: platform for platform in PLATFORMS}
every_platform = pytest.mark.parametrize("platform", PLATFORMS, ids=[platform.name for platform in PLATFORMS])


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as one:
        yield one


@every_platform
@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_platform_receives_these_bytes(receiver: Receiver, platform: Platform, language: str) -> None:
    channel = platform.channel(receiver, language=language)
    sent = [notice(detail="a_b <@all> [x](y) & http://z"), notice(NoticeKind.OUTAGE, is_over=True)]
    sent.append(replace(notice(), is_test=True))
    for one in sent:
        channel.send(one, at_ms=AT_MS)
    assert {one.headers["content-type"] for one in receiver.received} == {"application/json; charset=utf-8"}
    lines = [part for one in receiver.received for part in (f"{one.method} {one.target}".encode(), one.body)]
    assert_golden(f"{platform.name}.{language}.txt", b"\n".join(lines) + b"\n")


def test_a_signature_is_what_openssl_makes_of_the_same() -> None:
    """printf '%s\\n%s' 1700000000000 this-is-secret | openssl dgst -sha256 -hmac this-is-secret -binary | base64, with
    %XX for signs; and openssl dgst -sha256 -mac HMAC -macopt hexkey:<hex of 1599360473\\nsecret> of an empty file."""
    assert dingtalk_sign("this-is-secret", 1_700_000_000_000) == DINGTALK_SIGN
    assert feishu_sign("this-is-secret", 1_599_360_473) == FEISHU_SIGN


DINGTALK_SIGN = "TUTmkb1o5JOP3j54d4RvQSon7XOnzIJ3qqZdBvJSbEs%3D"
FEISHU_SIGN = "P8ililcUS2k3l2NMCzco8uxScD8WOKgMN6YSLRhpo6M="


def test_robots_without_a_secret_get_no_signature(receiver: Receiver) -> None:
    texts, post = NoticeTexts("en"), HttpPost(name="ops")
    receiver.answer = lambda _: Reply(status=200, body=b'{"errcode":0,"StatusCode":0}')
    ding = SecretText(f"{receiver.url}?access_token=x")
    DingTalkChannel(name="ops", url=ding, secret=None, texts=texts, post=post).send(notice(), at_ms=AT_MS)
    lark = SecretText(receiver.url)
    FeishuChannel(name="ops", url=lark, secret=None, texts=texts, post=post).send(notice(), at_ms=AT_MS)
    assert receiver.received[0].target == "/hook?access_token=x"
    assert json.loads(receiver.received[1].body).keys() == {"msg_type", "card"}


#: Platform, status, body, what a person reads of the remedy.
REFUSALS = [
    ("dingtalk", 200, {"errcode": 310000, "errmsg": "keywords not in content"}, "keyword that is not in the text"),
    ("dingtalk", 200, {"errcode": 310000, "errmsg": "sign not match"}, "secret of notifier ops is not that"),
    ("dingtalk", 200, {"errcode": 310000, "errmsg": "invalid timestamp"}, "clock of this machine"),
    ("dingtalk", 200, {"errcode": 310000, "errmsg": "ip 1.2.3.4 not in whitelist"}, "address of this machine"),
    ("dingtalk", 200, {"errcode": 310000, "errmsg": "description:关键词不匹配"}, "keyword that is not in the text"),
    ("dingtalk", 200, {"errcode": 310000, "errmsg": "机器人发送签名不匹配;请确认时间戳"}, "secret of notifier ops"),
    ("dingtalk", 200, {"errcode": 300001, "errmsg": "token is not exist"}, "correct url of notifier ops"),
    ("dingtalk", 200, {"errcode": 300005, "errmsg": "token is not exist"}, "correct url of notifier ops"),
    ("dingtalk", 200, {"errcode": 4711, "errmsg": "new"}, "compare url and secret of notifier ops"),
    ("feishu", 400, {"code": 9499, "msg": "Bad Request"}, "compare url and secret of notifier ops"),
    (
        "feishu",
        200,
        {"code": 19001, "msg": "param invalid: incoming webhook access token invalid"},
        "url of notifier ops",
    ),
    (
        "feishu",
        200,
        {"code": 19021, "msg": "sign match fail or timestamp is not within one hour"},
        "secret of notifier",
    ),
    ("feishu", 200, {"code": 19022, "msg": "Ip Not Allowed"}, "IP whitelist"),
    ("feishu", 200, {"code": 19024, "msg": "Key Words Not Found"}, "keyword"),
    ("wecom", 200, {"errcode": 93000, "errmsg": "invalid webhook url"}, "key in url of notifier ops"),
    ("wecom", 200, {"errcode": 40058, "errmsg": "markdown.content exceed max length 4096"}, "url of notifier ops"),
    ("wecom", 404, {}, "url of notifier ops"),
    ("slack", 400, "invalid_payload", "compare url of notifier ops"),
    ("slack", 403, "action_prohibited", "administrator"),
    ("slack", 403, "invalid_token", "create the webhook again"),
    ("slack", 404, "no_service", "create the webhook again"),
    ("slack", 404, "channel_not_found", "channel was deleted"),
    ("slack", 410, "channel_is_archived", "restore it"),
]


def body_of(told: object) -> bytes:
    return told.encode() if isinstance(told, str) else json.dumps(told).encode()


@pytest.mark.parametrize(("name", "status", "told", "remedy"), REFUSALS)
def test_what_a_person_has_to_mend_says_how(
    receiver: Receiver, name: str, status: int, told: object, remedy: str
) -> None:
    channel = BY_NAME[name].channel(receiver, Reply(status=status, body=body_of(told)))
    with pytest.raises(ChannelRefused) as refused:
        channel.send(notice(), at_ms=AT_MS)
    assert remedy in refused.value.remedy
    assert refused.value.remedy in str(refused.value)


#: Platform, status, body, seconds to wait.
PASSING = [
    ("dingtalk", 200, {"errcode": -1, "errmsg": "busy"}, 60.0),
    ("dingtalk", 200, {"errcode": 130101, "errmsg": "send too fast, exceed 20 times per minute"}, SILENCE_SECONDS),
    ("dingtalk", 200, {"errcode": 410100, "errmsg": "too fast"}, SILENCE_SECONDS),
    ("feishu", 400, {"code": 9499, "msg": "too many request", "data": {}}, 60.0),
    ("feishu", 200, {"code": 11232, "msg": "frequency limited psm"}, 60.0),
    ("wecom", 200, {"errcode": 45009, "errmsg": "api freq out of limit"}, 60.0),
    ("wecom", 200, {"errcode": -1, "errmsg": "system busy"}, 60.0),
    ("slack", 500, "rollup_error", None),
]


@pytest.mark.parametrize(("name", "status", "told", "seconds"), PASSING)
def test_what_passes_is_tried_again_and_not_too_early(
    receiver: Receiver, name: str, status: int, told: object, seconds: float | None
) -> None:
    channel = BY_NAME[name].channel(receiver, Reply(status=status, body=body_of(told)))
    with pytest.raises(ChannelAway) as away:
        channel.send(notice(), at_ms=AT_MS)
    assert away.value.retry_after_seconds == seconds


@every_platform
@pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
def test_a_busy_server_says_when_to_come_again(receiver: Receiver, platform: Platform, status: int) -> None:
    channel = platform.channel(receiver, Reply(status=status, body=b"<html>", headers={"Retry-After": "7"}))
    with pytest.raises(ChannelAway) as away:
        channel.send(notice(), at_ms=AT_MS)
    assert away.value.retry_after_seconds == 7.0


@every_platform
@pytest.mark.parametrize(
    "body",
    [b"", b"<html>log in</html>", b"{}", b"[]", b'{"errcode":"0","code":"0"}', b'{"errcode":null}', b"0", b"[" * 9_999],
    ids=range(8),
)
def test_a_200_that_says_nothing_delivers_nothing(receiver: Receiver, platform: Platform, body: bytes) -> None:
    channel = platform.channel(receiver, Reply(status=200, body=body))
    with pytest.raises(ChannelAway, match="address that"):
        channel.send(notice(), at_ms=AT_MS)


def test_a_secret_at_the_place_where_an_answer_is_cut_is_blotted_out_whole() -> None:
    hidden = [SecretText(SECRET)]
    for before in range(WORDS_CHARACTERS_MAX - len(SECRET), WORDS_CHARACTERS_MAX):
        for words in ("x" * before, "x " * (before // 2), "x" + " " * (before - 1)):
            assert SECRET[:4] not in shown_words(f"{words}{SECRET} and more", hidden)


@every_platform
@pytest.mark.parametrize("status", [200, 400, 500])
def test_no_error_repeats_a_token_or_a_secret(receiver: Receiver, platform: Platform, status: int) -> None:
    secret = SECRET if platform.name in ("dingtalk", "feishu") else ""
    login = "b3BzOnN3b3JkZmlzaA=="
    echo = f"{platform.url(receiver)} {TOKEN} {secret} swordfish {login} \x1b[2J\nforged line"
    told = json.dumps({"errcode": 310000, "errmsg": echo, "code": 19021, "msg": echo})
    body = (echo if platform.name == "slack" else told).encode()
    receiver.url = receiver.url.replace("http://", "http://ops:swordfish@")
    channel = platform.channel(receiver, Reply(status=status, body=body))
    with pytest.raises((ChannelAway, ChannelRefused)) as error:
        channel.send(notice(), at_ms=AT_MS)
    shown = f"{error.value} {error.value!r}"
    assert TOKEN not in shown
    assert SECRET not in shown
    assert "swordfish" not in shown
    assert receiver.received[0].headers["authorization"] == f"Basic {login}"
    assert login not in shown
    assert "***" in shown
    assert "\x1b" not in shown
    assert len(str(error.value).splitlines()) == 1


@every_platform
def test_a_platform_that_hangs_stops_no_other_notice(receiver: Receiver, platform: Platform) -> None:
    ends = threading.Event()
    channel = platform.channel(receiver, Reply(hangs=ends), seconds=0.3)
    with pytest.raises(ChannelAway):
        channel.send(notice(), at_ms=AT_MS)
    ends.set()


@every_platform
def test_no_token_follows_a_redirect(receiver: Receiver, platform: Platform) -> None:
    with receiving() as other:
        channel = platform.channel(receiver, Reply(status=307, headers={"Location": other.url}))
        with pytest.raises(ChannelRefused) as refused:
            channel.send(notice(), at_ms=AT_MS)
    assert not other.received
    assert TOKEN not in str(refused.value)


@every_platform
def test_no_token_is_sent_to_a_stranger(platform: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known, stranger = Authority(tmp_path / "known"), Authority(tmp_path / "stranger")
    monkeypatch.setenv("SSL_CERT_FILE", str(known.file))
    with receiving(certificate=stranger.issue("server")) as receiver:
        with pytest.raises(ChannelRefused):
            platform.channel(receiver).send(notice(), at_ms=AT_MS)
        assert not receiver.received
    with receiving(certificate=known.issue("elsewhere", hosts=("other.example",))) as receiver:
        with pytest.raises(ChannelRefused):
            platform.channel(receiver).send(notice(), at_ms=AT_MS)
        assert not receiver.received
    with receiving(certificate=known.issue("server")) as receiver:
        platform.channel(receiver).send(notice(), at_ms=AT_MS)
        assert len(receiver.received) == 1

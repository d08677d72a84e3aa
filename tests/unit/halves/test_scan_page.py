"""The page of a scan is sent on, and opened by people who never saw the brokers."""

from __future__ import annotations

from reconciler.commands.scan import HalfGroup, ScanReport
from reconciler.commands.scan_page import page_of
from reconciler.contract.facts import Code
from reconciler.halves.values import BrokerFindings, Half, HalfCopy, HalfFate

#: Markup, text turned round, a line that ends, and what nobody sees. Any producer may write it into REAL_TOPIC.
HOSTILE = "<script>\u202egnp.exe\x1b[2J\u2028\u200b"
NEXT = Code("scan.look-again")


def test_names_of_strangers_neither_turn_the_text_of_the_page_nor_hide_in_it() -> None:
    copy = HalfCopy(
        broker=HOSTILE,
        topic=HOSTILE,
        producer_group=HOSTILE,
        unique_key=HOSTILE,
        queue_offset=0,
        commit_log_offset=0,
        born_ms=0,
        store_ms=0,
        asked=0,
        is_put_back=False,
        left_alone_seconds=0.0,
        offset_message_id="",
    )
    half = Half(copy=copy, state=HalfFate.OPEN)
    group = HalfGroup(
        topic=HOSTILE,
        producer_group=HOSTILE,
        state=HalfFate.OPEN,
        business=None,
        halves=(half,),
        producers=None,
        next_step=NEXT(),
    )
    found = BrokerFindings(broker=HOSTILE, halves=(half,), is_finished=True)
    page = page_of(ScanReport(scanned_at_ms=0, older_than_seconds=60.0, findings=[found], groups=[group]))
    assert "<script>" not in page
    assert {letter for letter in HOSTILE if not letter.isprintable() and letter in page} == set()
    assert page.count("&lt;script&gt;\\u{202E}gnp.exe") == 10, "in each of the two languages"

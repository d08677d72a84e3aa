"""Counts the lines of the product that run, by function. They are as many on a busy machine as on an idle one."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import reconciler

_PRODUCT = f"{Path(reconciler.__file__).parent}/"
#: A function with fewer lines is cheap, however its number of lines grew.
CHEAP_LINES = 1_000
#: What a function may grow beyond the number of subscriptions. Sorting grows a little faster, and a slow run asks more
#: often.
MARGIN = 2


@contextmanager
def counted_lines() -> Iterator[Counter[str]]:
    """Counts the lines that this thread, and threads that begin within the block, run there. Coverage traces, too, so a
    test that uses it is `unmeasured`."""
    found: Counter[str] = Counter()

    def called(frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(_PRODUCT):
            return None
        name = f"{code.co_filename.removeprefix(_PRODUCT)}:{code.co_qualname}"

        def ran(frame: FrameType, event: str, arg: Any) -> Any:
            found[name] += 1
            return ran

        return ran(frame, event, arg)

    before, of_threads = sys.gettrace(), threading.gettrace()
    threading.settrace(called)
    sys.settrace(called)
    try:
        yield found
    finally:
        sys.settrace(before)
        threading.settrace(of_threads)


def grown_faster(few: Mapping[str, int], many: Mapping[str, int], *, times: float) -> dict[str, tuple[int, int]]:
    """Function -> its lines in both runs, for functions that did more than `times` as much work in the second run."""
    return {
        name: (few.get(name, 0), lines)
        for name, lines in many.items()
        if lines > CHEAP_LINES and lines > MARGIN * times * few.get(name, 0)
    }

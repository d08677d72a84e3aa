"""How a service under test speaks to the test that started it: one JSON object a line."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

PRINTING = threading.Lock()


def say(event: str, **fields: Any) -> None:
    with PRINTING:
        sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
        sys.stdout.flush()


def until(what: str, condition: Callable[[], Any], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            say("late", what=what)
            raise SystemExit(3)
        time.sleep(0.02)

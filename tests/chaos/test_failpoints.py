"""Sentences: carried out at the step and the time that they name, so that runs die in the places they say."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.chaos.hosts import ROOT

PASSING = """
from tests.chaos.failpoints import Sentence
sentence = Sentence("{sentence}")
for number in range(5):
    print(number, end="", flush=True)
    sentence.passing("SqlOutbox.find:after")
    sentence.passing("SqlOutbox.find:before")
"""

HEARING = """
from tests.chaos.failpoints import Sentence, _wrapped

def tell(word):
    print(word, end=" ", flush=True)
    return "answer"

end = _wrapped(lambda: lambda: tell("sent") and (lambda: tell("heard")), "Repairs.end", Sentence("{sentence}"))
send = end()
tell("read")
hear = send()
tell("waits")
hear()
tell("goes on")
"""


@pytest.mark.parametrize(
    ("program", "sentence", "code", "came_to"),
    [
        (PASSING, "SqlOutbox.find:before:3:0.0", -signal.SIGKILL, "012"),
        (PASSING, "SqlOutbox.find:before:1:3600.0", 0, "01234"),
        (PASSING, "SqlOutbox.record:before:1:0.0", 0, "01234"),
        # What is heard later is over when it was heard.
        (HEARING, "Repairs.end:before:1:0.0", -signal.SIGKILL, ""),
        (HEARING, "Repairs.end:after:1:0.0", -signal.SIGKILL, "read sent waits heard "),
        (HEARING, "Repairs.end:after:2:0.0", 0, "read sent waits heard goes on "),
    ],
)
def test_nobody_dies_before_the_time_or_at_another_step(program: str, sentence: str, code: int, came_to: str) -> None:
    text = program.format(sentence=sentence)
    done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (code, came_to), done.stderr

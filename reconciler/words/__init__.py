"""The sentences that people read, in each language: one entry a code in the TOML files beside this one.

Commands, console, notices and reports say a fact with `said`, or take its pieces and mark them up. Below them nothing
imports this room, so no decision can rest on a sentence.
"""

from reconciler.words.catalogue import ENGLISH, LANGUAGES, sentences
from reconciler.words.saying import TIMES, Piece, counted, pieces, said, said_and_coded, told

__all__ = [
    "ENGLISH", "LANGUAGES", "TIMES", "Piece", "counted", "pieces", "said", "said_and_coded", "sentences", "told",
]  # fmt: skip

"""The sentences that people read, in each language. The TOML files beside this file have one entry for each code.

Commands, console, notices and reports show a fact by the text of `said`, or mark up its pieces. No lower layer imports
this package, so no decision can rest on a sentence.
"""

from reconciler.words.catalogue import ENGLISH, LANGUAGES, sentences
from reconciler.words.saying import TIMES, Piece, counted, pieces, said, said_and_coded, told

__all__ = [
    "ENGLISH", "LANGUAGES", "TIMES", "Piece", "counted", "pieces", "said", "said_and_coded", "sentences", "told",
]  # fmt: skip

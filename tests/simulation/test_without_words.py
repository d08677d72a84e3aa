"""Nothing that rounds, repairs and acts decide rests on a sentence."""

from __future__ import annotations

import pytest

from reconciler.words import ENGLISH, sentences
from tests.simulation.economies import in_turn, undisturbed
from tests.simulation.history import run_history
from tests.simulation.swarm import draw
from tests.without_words.sitecustomize import without_words


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("histories", [10, pytest.param(500, marks=pytest.mark.nightly)])
def test_histories_whose_sentences_are_codes_end_as_with_words(histories: int) -> None:
    with undisturbed():
        for seed in in_turn(range(1, histories + 1)):
            told = run_history(draw(seed))
            with without_words():
                assert all(code == text for code, text in sentences(ENGLISH).items())
                coded = run_history(draw(seed))
            assert coded == told, f"seed {seed}"

"""Makes the rules of rounds from the settings. Rules that count rounds depend on the time between two rounds."""

from __future__ import annotations

from reconciler.contract.keyspace import HISTORY_GENERATIONS_MAX
from reconciler.policy.brakes import BreakerRules
from reconciler.policy.judging.selection import HALVES_MAX, SCAN_MAX, SelectionRules
from reconciler.policy.pace import RoundPace
from reconciler.settings.schema import Settings


def pace_of(settings: Settings) -> RoundPace:
    """Returns the pace of rounds, which is the time between two rounds."""
    return RoundPace(interval_seconds=settings.rounds.interval_seconds)


def commit_generations(settings: Settings) -> int:
    """Returns the number of older commit sets that Redis keeps."""
    return pace_of(settings).rounds(settings.rounds.commit_generations)


def history_generations(settings: Settings) -> int:
    """Returns the number of rounds that keep their sets in Redis for the history. Without a history, it is 0."""
    return 0 if settings.history.path is None else min(HISTORY_GENERATIONS_MAX, commit_generations(settings))


def selection_rules(settings: Settings) -> SelectionRules:
    """Returns the rules by which a round selects keys, such as their number and age."""
    pace = pace_of(settings)
    return SelectionRules(
        skew_margin_seconds=settings.rounds.skew_margin_seconds,
        candidates_max=pace.of_a_round(settings.rounds.candidates_max),
        scan_max=pace.of_a_round(SCAN_MAX),
        halves_max=pace.of_a_round(HALVES_MAX),
        retention_seconds=settings.rounds.retention_seconds,
    )


def breaker_rules(settings: Settings) -> BreakerRules:
    """Returns the rules by which the breaker opens and closes."""
    return BreakerRules(
        candidates_min=settings.repairs.breaker_candidates_min,
        share=settings.repairs.breaker_share,
        pace=pace_of(settings),
    )

"""The waits before a judged key is looked at again."""

from __future__ import annotations

from reconciler.clock import Backoff
from reconciler.contract.verdicts import LOSSES, QUARANTINING, Verdict
from reconciler.policy.judging.judgement import Judgement
from reconciler.policy.judging.suspect import Suspect

#: Longest wait before a key that could not be decided is looked at again.
UNDECIDED_WAIT_SECONDS_MAX = 60.0
#: Longest wait before a lagging or retrying group is asked again.
LAGGING_WAIT_SECONDS_MAX = 300.0
#: Longest wait before the effect of a repair is looked for again.
LOSS_WAIT_SECONDS_MAX = 30.0
#: Shortest pause before databases are asked again for the missing evidence of a closed key.
ASK_AGAIN_SECONDS_MIN = 60.0


def wait_seconds(judgement: Judgement, *, attempts: int, grace_period_seconds: float, was_lost: bool = False) -> float:
    """Returns how long an OPEN key waits for its next look: a fraction of the grace period, which doubles with each
    look up to a limit.

    `was_lost`: a loss was proved earlier. Then the copy that its repair made is young, even if the key was looked at
    often before.
    """
    if judgement.wait_seconds is not None:
        return judgement.wait_seconds
    if judgement.verdict in LOSSES:
        return min(max(1.0, grace_period_seconds / 4), LOSS_WAIT_SECONDS_MAX)
    if judgement.verdict is Verdict.UNKNOWN:
        return Backoff(min(5.0, grace_period_seconds), UNDECIDED_WAIT_SECONDS_MAX).pause_seconds(attempts)
    lagging = Backoff(grace_period_seconds, LAGGING_WAIT_SECONDS_MAX).pause_seconds(attempts)
    return min(lagging, LOSS_WAIT_SECONDS_MAX) if was_lost else lagging


def ask_again_seconds(judgement: Judgement, suspect: Suspect) -> float | None:
    """Returns the pause before databases are asked again about a key that left pending because a row was missing. None:
    the verdict is final.

    A tombstone is final unless another database only claimed to have no row. Another content is final, too. A present
    effect would be found again each time.
    """
    if judgement.verdict is Verdict.REJECTED:
        outbox = suspect.outbox
        lacks_row = suspect.row is None or (suspect.commit is None and outbox is not None and outbox.has_absence)
    else:
        inbox = suspect.inbox
        is_missed = judgement.verdict in QUARANTINING and judgement.verdict is not Verdict.COLLISION
        lacks_row = is_missed and inbox is not None and not inbox.is_found
    return ASK_AGAIN_SECONDS_MIN if lacks_row else None

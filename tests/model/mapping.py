"""The product code that each action of the model represents: (file, dotted name). A test looks that they exist."""

from __future__ import annotations

Place = tuple[str, str]

ACTIONS: dict[str, tuple[Place, ...]] = {
    "commits locally": (
        ("producers/checkback_producers/transaction.py", "Transaction.record"),
        ("producers/checkback_producers/outbox.py", "SqlOutbox.record"),
    ),
    "rolls back": (("producers/checkback_producers/outbox.py", "SqlOutbox.insert_tombstone"),),
    "rolls back, END lost": (("producers/checkback_producers/check_answer.py", "decide"),),
    "END": (("reconciler/rocketmq/producer/ending.py", "end_transaction"),),
    "END lost": (("reconciler/rocketmq/producer/ending.py", "end_transaction"),),
    "announces": (
        ("producers/checkback_producers/announcer.py", "Announcer.announce"),
        ("producers/checkback_producers/outbox.py", "SqlOutbox.mark_announced"),
    ),
    "announces, producer dies before marking": (
        ("producers/checkback_producers/outbox.py", "SqlOutbox.mark_announced"),
    ),
    "producer dies": (("producers/checkback_producers/sweeper.py", "Sweeper.announce_new"),),
    "sweeper announces": (("producers/checkback_producers/sweeper.py", "Sweeper.announce_new"),),
    "check-back: no row, tombstone": (("producers/checkback_producers/check_answer.py", "decide"),),
    "check-back: tombstone": (("producers/checkback_producers/check_answer.py", "decide"),),
    "check-back: row": (("producers/checkback_producers/check_answer.py", "decide"),),
    "END repeated": (
        ("reconciler/policy/repairing/repair.py", "Repairer._send"),
        ("reconciler/evidence/repairs.py", "RemotingBrokerRepairs.end_transaction"),
    ),
    "END repeated, request lost": (("reconciler/policy/repairing/ladder.py", "after_answer"),),
    "reconciler dies before END": (("reconciler/policy/repairing/repair.py", "Repairer._send"),),
    "no copy: SENDING again": (
        ("reconciler/policy/repairing/ladder.py", "_sending"),
        ("reconciler/policy/repairing/ladder.py", "_end"),
    ),
    "owner paused past its lease, another one writes SENDING": (
        ("reconciler/sql/repair_claims.py", "RepairClaims.claim"),
        ("reconciler/sql/repair_claims.py", "RepairClaims.change"),
    ),
    "consumes": (
        ("consumers/checkback_consumers/effect.py", "SqlInbox.apply_once"),
        ("consumers/checkback_consumers/handler.py", "TransactionalHandler.apply"),
        ("reconciler/shards/sets.py", "RedisCommitSets.record"),
    ),
    "consumer dies after the effect": (("consumers/checkback_consumers/handler.py", "TransactionalHandler.apply"),),
    "consumer dies before the ack": (("consumers/checkback_consumers/handler.py", "TransactionalHandler.apply"),),
    "consumes, SADD fails": (("consumers/checkback_consumers/recorder.py", "CommitRecorder.record"),),
    "announcement taken": (
        ("reconciler/announcing/step.py", "AnnouncementStep.run_once"),
        ("reconciler/shards/sets.py", "RedisHalfSets.admit"),
    ),
    "round": (
        ("reconciler/shards/memory.py", "RedisShardMemory.take_round"),
        ("reconciler/policy/shard_rounds.py", "ShardRounds.run"),
        ("reconciler/shards/round_commands.py", "round_command"),
        ("reconciler/ledger/rounds.py", "SqlRounds.raise_floor"),
    ),
    "round runs, reconciler dies before storing it": (("reconciler/ledger/rounds.py", "SqlRounds.store"),),
    "settled": (
        ("reconciler/policy/judging/judgement.py", "judge"),
        ("reconciler/shards/memory.py", "RedisShardMemory.forget"),
    ),
    "not taken": (
        ("reconciler/policy/judging/tag_filter.py", "TagFilter.leave"),
        ("reconciler/policy/judging/tag_filter.py", "is_filtered_out"),
    ),
    "lost: SENDING": (
        ("reconciler/policy/judging/judgement.py", "judge"),
        ("reconciler/policy/repairing/repair.py", "Repairer.open"),
    ),
    "round hands the difference over": (("reconciler/demo/classic/round.py", "ClassicRound.run"),),
    "round runs, reconciler dies before the hand-over": (("reconciler/demo/classic/round.py", "ClassicRound.run"),),
    "Redis loses everything": (
        ("reconciler/announcing/step.py", "AnnouncementStep._follow"),
        ("reconciler/announcing/step.py", "AnnouncementStep._find_position"),
    ),
    "Redis falls back to its disk": (
        ("reconciler/announcing/step.py", "AnnouncementStep._follow"),
        ("reconciler/policy/shard_rounds.py", "ShardRounds._void"),
    ),
}


def places_of(action: str) -> tuple[Place, ...]:
    """Product code behind a step's name, which for a round lists its verdicts, too."""
    parts = action.split(", ") if action.startswith("round,") else [action]
    found: list[Place] = []
    for part in parts:
        name = part.partition(" ")[2] if part[0].isdigit() else part
        found += ACTIONS[name.partition(": 0")[0].partition(": 1")[0]]
    return tuple(found)

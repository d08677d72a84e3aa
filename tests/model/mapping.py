"""Which product code each action of the model stands for: (file, dotted name). A test looks that they exist."""

from __future__ import annotations

Place = tuple[str, str]

ACTIONS: dict[str, tuple[Place, ...]] = {
    "commits locally": (
        ("producers/transaction.py", "Transaction.record"),
        ("producers/outbox.py", "SqlOutbox.record"),
    ),
    "rolls back": (("producers/outbox.py", "SqlOutbox.insert_tombstone"),),
    "rolls back, END lost": (("producers/check_answer.py", "decide"),),
    "END": (("reconciler/rocketmq/ending.py", "end_transaction"),),
    "END lost": (("reconciler/rocketmq/ending.py", "end_transaction"),),
    "announces": (
        ("producers/announcer.py", "Announcer.announce"),
        ("producers/outbox.py", "SqlOutbox.mark_announced"),
    ),
    "announces, producer dies before marking": (("producers/outbox.py", "SqlOutbox.mark_announced"),),
    "producer dies": (("producers/sweeper.py", "Sweeper.announce_new"),),
    "sweeper announces": (("producers/sweeper.py", "Sweeper.announce_new"),),
    "check-back: no row, tombstone": (("producers/check_answer.py", "decide"),),
    "check-back: tombstone": (("producers/check_answer.py", "decide"),),
    "check-back: row": (("producers/check_answer.py", "decide"),),
    "END repeated": (
        ("reconciler/repair.py", "Repairer._send"),
        ("reconciler/rocketmq/broker_repairs.py", "RemotingBrokerRepairs.end_transaction"),
    ),
    "END repeated, request lost": (("reconciler/repair_ladder.py", "after_answer"),),
    "reconciler dies before END": (("reconciler/repair.py", "Repairer._act"),),
    "no copy: SENDING again": (("reconciler/repair_ladder.py", "_sending"), ("reconciler/repair_ladder.py", "_end")),
    "owner paused past its lease, another one writes SENDING": (
        ("reconciler/sql/repair_rows.py", "RepairRows.claim"),
        ("reconciler/sql/repair_rows.py", "RepairRows.change"),
    ),
    "consumes": (
        ("consumers/effect.py", "SqlInbox.apply_once"),
        ("consumers/handler.py", "TransactionalHandler.apply"),
        ("consumers/redis_sets.py", "RedisCommitSets.record"),
    ),
    "consumer dies after the effect": (("consumers/handler.py", "TransactionalHandler.apply"),),
    "consumer dies before the ack": (("consumers/handler.py", "TransactionalHandler.apply"),),
    "consumes, SADD fails": (("consumers/recorder.py", "CommitRecorder.record"),),
    "announcement taken": (
        ("consumers/announcement_step.py", "AnnouncementStep.run_once"),
        ("consumers/redis_sets.py", "RedisHalfSets.admit"),
    ),
    "round": (
        ("reconciler/ledger/shard_memory.py", "RedisShardMemory.take_round"),
        ("reconciler/shard_rounds.py", "ShardRounds.run"),
        ("reconciler/ledger/round_commands.py", "round_commands"),
        ("reconciler/ledger/rounds.py", "SqlRounds.raise_floor"),
    ),
    "round runs, reconciler dies before storing it": (("reconciler/ledger/rounds.py", "SqlRounds.store"),),
    "settled": (("reconciler/judgement.py", "judge"), ("reconciler/ledger/shard_memory.py", "RedisShardMemory.forget")),
    "not taken": (("reconciler/not_taken.py", "NotTaken.leave"), ("reconciler/not_taken.py", "is_not_taken")),
    "lost: SENDING": (("reconciler/judgement.py", "judge"), ("reconciler/repair.py", "Repairer.open")),
    "round replays the difference": (("reconciler/classic_round.py", "ClassicRound.run"),),
    "round runs, reconciler dies before the replay": (("reconciler/classic_round.py", "ClassicRound.run"),),
    "Redis loses everything": (
        ("consumers/announcement_step.py", "AnnouncementStep._follow"),
        ("consumers/announcement_step.py", "AnnouncementStep._find_position"),
    ),
    "Redis falls back to its disk": (
        ("consumers/announcement_step.py", "AnnouncementStep._follow"),
        ("reconciler/shard_rounds.py", "ShardRounds._void"),
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

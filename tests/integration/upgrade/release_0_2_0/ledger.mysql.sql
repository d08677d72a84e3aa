CREATE TABLE reconciler_alembic_version_ledger (
    version_num VARCHAR(32) NOT NULL, 
    CONSTRAINT reconciler_alembic_version_ledger_pkc PRIMARY KEY (version_num)
);

-- Running upgrade  -> 0001_ledger

CREATE TABLE reconciler_candidate (
    environment VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'Environment.', 
    topic VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'Business topic.', 
    consumer_group VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'The group.', 
    unique_key VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'UNIQ_KEY.', 
    shard INTEGER NOT NULL COMMENT 'Shard.', 
    state VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'OPEN, SETTLED or QUARANTINED.', 
    verdict VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'The latest verdict.', 
    loss_verdict VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin COMMENT 'The first verdict that meant a loss; never changed.', 
    evidence LONGTEXT CHARACTER SET utf8mb4 NOT NULL COMMENT 'What each witness answered.', 
    attempts INTEGER NOT NULL COMMENT 'Verifications so far.', 
    first_seen_ms BIGINT NOT NULL COMMENT 'Redis TIME of the round that first saw the key.', 
    next_at_ms BIGINT NOT NULL COMMENT 'Not verified again before this time.', 
    updated_at_ms BIGINT NOT NULL COMMENT 'Last change.', 
    PRIMARY KEY (environment, topic, consumer_group, unique_key)
)ENGINE=InnoDB CHARSET=utf8mb4 COMMENT='One row a key that was due and verified: verdict and evidence.';

CREATE INDEX ix_reconciler_candidate_environment_state_next ON reconciler_candidate (environment, state, next_at_ms);

CREATE INDEX ix_reconciler_candidate_unique ON reconciler_candidate (unique_key);

CREATE TABLE reconciler_repair (
    environment VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'Environment.', 
    topic VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'Business topic.', 
    scope VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT '''*'', or the group of a hand-over.', 
    unique_key VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'UNIQ_KEY.', 
    state VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'OPEN, SENDING, SENT, DONE or FAILED.', 
    rung VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'end, republish or hand-over.', 
    token VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin COMMENT 'Owner of the claim.', 
    lease_until_ms BIGINT COMMENT 'End of the claim; after it the row is free.', 
    attempts INTEGER NOT NULL COMMENT 'Sends so far: written before a byte leaves.', 
    next_at_ms BIGINT NOT NULL COMMENT 'Not tried again before this time.', 
    target LONGTEXT CHARACTER SET utf8mb4 COMMENT 'Broker and offsets that were aimed at.', 
    answer LONGTEXT CHARACTER SET utf8mb4 COMMENT 'What the broker or the handler answered.', 
    message LONGTEXT CHARACTER SET utf8mb4 COMMENT 'Hand-over: topic, properties, body (base64); emptied at DONE.', 
    created_at_ms BIGINT NOT NULL COMMENT 'When the loss was proved.', 
    sent_at_ms BIGINT COMMENT 'Last send.', 
    done_at_ms BIGINT COMMENT 'When every group''s inbox had the key.', 
    PRIMARY KEY (environment, topic, scope, unique_key)
)ENGINE=InnoDB CHARSET=utf8mb4 COMMENT='One row a repair: END and republish once a key (scope ''*''), a hand-over once a key and group.';

CREATE INDEX ix_reconciler_repair_environment_state_next ON reconciler_repair (environment, state, next_at_ms);

CREATE INDEX ix_reconciler_repair_unique ON reconciler_repair (unique_key);

CREATE TABLE reconciler_round (
    environment VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'Environment.', 
    topic VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'Business topic.', 
    consumer_group VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'The group.', 
    shard INTEGER NOT NULL COMMENT 'Shard.', 
    epoch VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'Redis memory the round ran in.', 
    generation BIGINT NOT NULL COMMENT 'The fence after the round.', 
    at_ms BIGINT NOT NULL COMMENT 'Redis TIME of the round.', 
    offsets LONGTEXT CHARACTER SET utf8mb4 NOT NULL COMMENT '{"broker/queue": next offset} when the round ran.', 
    announced BIGINT NOT NULL COMMENT 'Keys in the half set.', 
    matched BIGINT NOT NULL COMMENT 'Of those, consumed already.', 
    pending_before BIGINT NOT NULL COMMENT 'Pending before the round.', 
    pending_added BIGINT NOT NULL COMMENT 'New in pending.', 
    pending_matched BIGINT NOT NULL COMMENT 'Left pending because they were consumed.', 
    pending_after BIGINT NOT NULL COMMENT 'Pending after the round.', 
    void INTEGER NOT NULL COMMENT '1: Redis fell back to a memory before this round, which counts as never run.', 
    stored_at_ms BIGINT NOT NULL COMMENT 'When the row was written.', 
    PRIMARY KEY (environment, topic, consumer_group, shard, epoch, generation)
)ENGINE=InnoDB CHARSET=utf8mb4 COMMENT='One row a round that ran: its counts and the announcement offsets it covered.';

CREATE INDEX ix_reconciler_round_environment_stored ON reconciler_round (environment, stored_at_ms);

CREATE TABLE reconciler_floor (
    environment VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'Environment.', 
    topic VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'Business topic.', 
    consumer_group VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'The group.', 
    broker VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'Broker of the unique-key topic''s queue.', 
    queue_id INTEGER NOT NULL COMMENT 'Queue number.', 
    queue_offset BIGINT NOT NULL COMMENT 'Lowest offset with a key that may be neither matched nor settled.', 
    updated_at_ms BIGINT NOT NULL COMMENT 'Last change.', 
    PRIMARY KEY (environment, topic, consumer_group, broker, queue_id)
)ENGINE=InnoDB CHARSET=utf8mb4 COMMENT='Everything announced below this offset was matched or settled: where to start when Redis lost everything.';

CREATE TABLE reconciler_outage (
    environment VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'Environment.', 
    started_at_ms BIGINT NOT NULL COMMENT 'Start, or the last stored round before it.', 
    reason VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'AWAY, MEMORY_LOST or UNSAFE.', 
    noticed_by VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'Process that opened the row.', 
    scan_position LONGTEXT CHARACTER SET utf8mb4 COMMENT 'Progress of the inbox scan.', 
    scanned BIGINT NOT NULL COMMENT 'Inbox rows put back into commit sets.', 
    closed_at_ms BIGINT COMMENT 'End of the outage.', 
    PRIMARY KEY (environment, started_at_ms)
)ENGINE=InnoDB CHARSET=utf8mb4 COMMENT='One row an outage: Redis was away or lost its memory. Open while closed_at_ms is NULL.';

CREATE TABLE reconciler_hold (
    environment VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'Environment.', 
    topic VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'Business topic.', 
    kind VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'HOLD or BREAKER.', 
    since_ms BIGINT NOT NULL COMMENT 'Time of the event.', 
    `by` VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'User or process.', 
    reason LONGTEXT CHARACTER SET utf8mb4 NOT NULL COMMENT 'Reason.', 
    PRIMARY KEY (environment, topic, kind)
)ENGINE=InnoDB CHARSET=utf8mb4 COMMENT='Repairs of a topic are stopped: by a person (HOLD) or by the circuit breaker (BREAKER).';

CREATE TABLE reconciler_quarantine (
    environment VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'Environment of the refusing process.', 
    unique_key_topic VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'Topic it came from.', 
    broker VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'Broker.', 
    queue_id INTEGER NOT NULL COMMENT 'Queue number.', 
    queue_offset BIGINT NOT NULL COMMENT 'Offset.', 
    reason VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'MALFORMED, VERSION, ENVIRONMENT, TOPIC, SIGNATURE, SIZE or SHAPE.', 
    detail LONGTEXT CHARACTER SET utf8mb4 NOT NULL COMMENT 'The error''s message.', 
    body LONGBLOB NOT NULL COMMENT 'The first 4 KiB of the body.', 
    seen_at_ms BIGINT NOT NULL COMMENT 'Time of the event.', 
    PRIMARY KEY (environment, unique_key_topic, broker, queue_id, queue_offset)
)ENGINE=InnoDB CHARSET=utf8mb4 COMMENT='Announcements that were refused: counted and kept, the queue moved on.';

INSERT INTO reconciler_alembic_version_ledger (version_num) VALUES ('0001_ledger');

-- Running upgrade 0001_ledger -> 0002_first_send

ALTER TABLE reconciler_repair ADD COLUMN first_sent_at_ms BIGINT COMMENT 'First send; NULL also where an older release sent it.';

UPDATE reconciler_alembic_version_ledger SET version_num='0002_first_send' WHERE reconciler_alembic_version_ledger.version_num = '0001_ledger';

-- Running upgrade 0002_first_send -> 0003_broker

CREATE TABLE reconciler_broker (
    environment VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'Environment.', 
    topic VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'Business topic.', 
    broker VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'Broker name.', 
    gone_since_ms BIGINT COMMENT 'First round that missed it in the route; NULL: it is there.', 
    PRIMARY KEY (environment, topic, broker)
)ENGINE=InnoDB CHARSET=utf8mb4 COMMENT='One row a broker that was seen in a topic''s route: while it is away, nothing of the topic is ABSENT.';

UPDATE reconciler_alembic_version_ledger SET version_num='0003_broker' WHERE reconciler_alembic_version_ledger.version_num = '0002_first_send';

-- Running upgrade 0003_broker -> 0004_operator_action

CREATE TABLE reconciler_operator_action (
    action_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'Random.', 
    environment VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'Environment.', 
    `by` VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'User.', 
    command VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'hold, resume, repair, dismiss or rebuild.', 
    topic VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin COMMENT 'Business topic; NULL: of all.', 
    consumer_group VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin COMMENT 'The group; NULL: of all.', 
    unique_key VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin COMMENT 'UNIQ_KEY, where it was done to one message.', 
    detail LONGTEXT CHARACTER SET utf8mb4 NOT NULL COMMENT 'The reason or options that were given.', 
    started_at_ms BIGINT NOT NULL COMMENT 'Just before it was done.', 
    ended_at_ms BIGINT COMMENT 'NULL: under way, or the process died in it.', 
    result LONGTEXT CHARACTER SET utf8mb4 COMMENT 'What was done, or the error.', 
    PRIMARY KEY (action_id)
)ENGINE=InnoDB CHARSET=utf8mb4 COMMENT='One row an action that a person took by hand, written before it is done: by whom, what, and its result.';

CREATE INDEX ix_reconciler_operator_action_environment_started ON reconciler_operator_action (environment, started_at_ms);

CREATE INDEX ix_reconciler_operator_action_unique ON reconciler_operator_action (unique_key);

UPDATE reconciler_alembic_version_ledger SET version_num='0004_operator_action' WHERE reconciler_alembic_version_ledger.version_num = '0003_broker';

-- Running upgrade 0004_operator_action -> 0005_ask_again

ALTER TABLE reconciler_candidate ADD COLUMN ask_again_at_ms BIGINT COMMENT 'After this the databases are asked about a closed row again; NULL: they are not.';

CREATE INDEX ix_reconciler_candidate_environment_topic_consumer_ask ON reconciler_candidate (environment, topic, consumer_group, ask_again_at_ms);

UPDATE reconciler_alembic_version_ledger SET version_num='0005_ask_again' WHERE reconciler_alembic_version_ledger.version_num = '0004_operator_action';

-- Running upgrade 0005_ask_again -> 0006_job

CREATE TABLE reconciler_job (
    job_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'Random, or made of the idempotency key of the request.', 
    environment VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'Environment.', 
    kind VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'REPAIR or REBUILD.', 
    request LONGTEXT CHARACTER SET utf8mb4 NOT NULL COMMENT 'What was asked for: keys, topic and group or a time, and the reason.', 
    `by` VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'User.', 
    state VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'QUEUED, RUNNING, DONE, FAILED or CANCELLED.', 
    token VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin COMMENT 'Owner of the claim.', 
    lease_until_ms BIGINT COMMENT 'End of the claim; before it no other process takes the job.', 
    attempts INTEGER NOT NULL COMMENT 'Claims since the job last came forward: an owner that dies gives none back.', 
    work LONGTEXT CHARACTER SET utf8mb4 COMMENT 'Repair: topic, group and key of each message, in order.', 
    done BIGINT NOT NULL COMMENT 'Repair: keys that are finished, from the first on. Rebuild: inbox rows.', 
    total BIGINT COMMENT 'Repair: keys. NULL: not known.', 
    counts LONGTEXT CHARACTER SET utf8mb4 COMMENT 'Repair: finished keys by outcome.', 
    `lines` LONGTEXT CHARACTER SET utf8mb4 COMMENT 'Repair: the first keys that did not end well, and why.', 
    error LONGTEXT CHARACTER SET utf8mb4 COMMENT 'Why it failed, or what it waits for.', 
    cancelled_by VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin COMMENT 'Who wished that it ends before its time.', 
    created_at_ms BIGINT NOT NULL COMMENT 'When it was asked for.', 
    started_at_ms BIGINT COMMENT 'First claim.', 
    ended_at_ms BIGINT COMMENT 'When it was DONE, FAILED or CANCELLED.', 
    PRIMARY KEY (job_id)
)ENGINE=InnoDB CHARSET=utf8mb4 COMMENT='One row a job: a long action that a person asked for, done by one process at a time, by any that can.';

CREATE INDEX ix_reconciler_job_environment_created ON reconciler_job (environment, created_at_ms);

CREATE INDEX ix_reconciler_job_environment_state_created ON reconciler_job (environment, state, created_at_ms);

CREATE TABLE reconciler_idempotency_key (
    environment VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'Environment.', 
    `by` VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'User: the keys of two users are not the same key.', 
    idempotency_key VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'The act, and a digest of the client''s key.', 
    digest VARBINARY(32) NOT NULL COMMENT 'SHA-256 of the request: another request with the same key is refused.', 
    state VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'UNDER_WAY or ANSWERED.', 
    token VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin COMMENT 'Who works on it.', 
    lease_until_ms BIGINT COMMENT 'After it a request that is UNDER_WAY counts as dead.', 
    status INTEGER COMMENT 'Status of the answer.', 
    answer LONGTEXT CHARACTER SET utf8mb4 COMMENT 'The answer.', 
    created_at_ms BIGINT NOT NULL COMMENT 'First request.', 
    PRIMARY KEY (environment, `by`, idempotency_key)
)ENGINE=InnoDB CHARSET=utf8mb4 COMMENT='One row a request with an idempotency key: the same request again is answered from here. Kept for a day.';

CREATE INDEX ix_reconciler_idempotency_key_environment_created ON reconciler_idempotency_key (environment, created_at_ms);

UPDATE reconciler_alembic_version_ledger SET version_num='0006_job' WHERE reconciler_alembic_version_ledger.version_num = '0005_ask_again';

-- Running upgrade 0006_job -> 0007_environment

CREATE TABLE reconciler_environment (
    environment VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'Environment.', 
    brokers LONGTEXT CHARACTER SET utf8mb4 NOT NULL COMMENT 'List of "cluster/broker at address": what that process knows.', 
    `by` VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'Process that wrote the row last.', 
    renewed_at_ms BIGINT NOT NULL COMMENT 'When it did; 30 s later the row says nothing any more.', 
    PRIMARY KEY (environment)
)ENGINE=InnoDB CHARSET=utf8mb4 COMMENT='One row an environment: the cluster that its processes run with. Processes of another cluster are refused.';

UPDATE reconciler_alembic_version_ledger SET version_num='0007_environment' WHERE reconciler_alembic_version_ledger.version_num = '0006_job';

-- Running upgrade 0007_environment -> 0008_pages

SET SESSION lock_wait_timeout = 2;

ALTER TABLE reconciler_candidate ADD INDEX ix_reconciler_candidate_page_first (environment, first_seen_ms, topic, consumer_group, unique_key), ALGORITHM=INPLACE, LOCK=NONE;

SET SESSION lock_wait_timeout = 2;

ALTER TABLE reconciler_candidate ADD INDEX ix_reconciler_candidate_page_state_first (environment, state, first_seen_ms, topic, consumer_group, unique_key), ALGORITHM=INPLACE, LOCK=NONE;

SET SESSION lock_wait_timeout = 2;

ALTER TABLE reconciler_repair ADD INDEX ix_reconciler_repair_page_created (environment, created_at_ms, topic, scope, unique_key), ALGORITHM=INPLACE, LOCK=NONE;

SET SESSION lock_wait_timeout = 2;

ALTER TABLE reconciler_repair ADD INDEX ix_reconciler_repair_page_state_created (environment, state, created_at_ms, topic, scope, unique_key), ALGORITHM=INPLACE, LOCK=NONE;

SET SESSION lock_wait_timeout = 2;

ALTER TABLE reconciler_quarantine ADD INDEX ix_reconciler_quarantine_page_seen (environment, seen_at_ms, unique_key_topic, broker, queue_id, queue_offset), ALGORITHM=INPLACE, LOCK=NONE;

UPDATE reconciler_alembic_version_ledger SET version_num='0008_pages' WHERE reconciler_alembic_version_ledger.version_num = '0007_environment';

-- Running upgrade 0008_pages -> 0009_counts

SET SESSION lock_wait_timeout = 2;

ALTER TABLE reconciler_candidate ADD INDEX ix_reconciler_candidate_count (environment, topic, consumer_group, state, verdict, loss_verdict, first_seen_ms), ALGORITHM=INPLACE, LOCK=NONE;

SET SESSION lock_wait_timeout = 2;

ALTER TABLE reconciler_repair ADD INDEX ix_reconciler_repair_count (environment, topic, scope, state, rung, attempts), ALGORITHM=INPLACE, LOCK=NONE;

UPDATE reconciler_alembic_version_ledger SET version_num='0009_counts' WHERE reconciler_alembic_version_ledger.version_num = '0008_pages';

-- Running upgrade 0009_counts -> 0010_verified_repairs

SET SESSION lock_wait_timeout = 2;

ALTER TABLE reconciler_repair ADD INDEX ix_reconciler_repair_environment_done (environment, done_at_ms), ALGORITHM=INPLACE, LOCK=NONE;

UPDATE reconciler_alembic_version_ledger SET version_num='0010_verified_repairs' WHERE reconciler_alembic_version_ledger.version_num = '0009_counts';

-- Running upgrade 0010_verified_repairs -> 0011_notice

CREATE TABLE reconciler_notice (
    environment VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'Environment.', 
    notifier VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'Name of the notifier.', 
    kind VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'What it is about: a word of [[notifiers]] notices.', 
    topic VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'Business topic; empty: of no single one.', 
    consumer_group VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'The group; empty: of no single one.', 
    version INTEGER NOT NULL COMMENT 'Grows with every change: a process replaces only the version that it has read.', 
    is_open INTEGER NOT NULL COMMENT '1: the receiver knows of the trouble, and not of its end.', 
    mark_ms BIGINT NOT NULL COMMENT 'Losses, outages: all until then were told. Others: time of the newest told.', 
    mark_count BIGINT NOT NULL COMMENT 'How many of those after mark_ms, or of those that stood, were told.', 
    since_ms BIGINT COMMENT 'When the trouble began that was told last.', 
    told_at_ms BIGINT COMMENT 'When a message was sent last.', 
    trouble_at_ms BIGINT COMMENT 'When one was sent last that not only told an end.', 
    notice LONGTEXT CHARACTER SET utf8mb4 COMMENT 'The message that waits, and what is told with it.', 
    next_at_ms BIGINT NOT NULL COMMENT 'It is not sent before this time.', 
    token VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin COMMENT 'Owner of the claim.', 
    lease_until_ms BIGINT COMMENT 'End of the claim; after it another process sends it.', 
    attempts INTEGER NOT NULL COMMENT 'Tries since a message was sent: written before a byte leaves.', 
    error LONGTEXT CHARACTER SET utf8mb4 COMMENT 'Why the last try failed.', 
    is_refused INTEGER NOT NULL COMMENT '1: the receiver refused it; a person has to mend something.', 
    created_at_ms BIGINT NOT NULL COMMENT 'When the row was made; of the oldest row: when the notifier began.', 
    PRIMARY KEY (environment, notifier, kind, topic, consumer_group)
)ENGINE=InnoDB CHARSET=utf8mb4 COMMENT='One row a conversation: what one notifier told of one kind of trouble, and the message that waits.';

ALTER TABLE reconciler_candidate ADD COLUMN loss_at_ms BIGINT COMMENT 'When the loss was proved; NULL: it was not, or by an older release.';

SET SESSION lock_wait_timeout = 2;

ALTER TABLE reconciler_candidate ADD INDEX ix_reconciler_candidate_environment_topic_consumer_loss (environment, topic, consumer_group, loss_at_ms), ALGORITHM=INPLACE, LOCK=NONE;

UPDATE reconciler_alembic_version_ledger SET version_num='0011_notice' WHERE reconciler_alembic_version_ledger.version_num = '0010_verified_repairs';


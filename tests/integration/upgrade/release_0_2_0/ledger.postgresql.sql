BEGIN;

CREATE TABLE reconciler_alembic_version_ledger (
    version_num VARCHAR(32) NOT NULL, 
    CONSTRAINT reconciler_alembic_version_ledger_pkc PRIMARY KEY (version_num)
);

-- Running upgrade  -> 0001_ledger

CREATE TABLE reconciler_candidate (
    environment VARCHAR(160) NOT NULL, 
    topic VARCHAR(160) NOT NULL, 
    consumer_group VARCHAR(160) NOT NULL, 
    unique_key VARCHAR(64) NOT NULL, 
    shard INTEGER NOT NULL, 
    state VARCHAR(32) NOT NULL, 
    verdict VARCHAR(32) NOT NULL, 
    loss_verdict VARCHAR(32), 
    evidence TEXT NOT NULL, 
    attempts INTEGER NOT NULL, 
    first_seen_ms BIGINT NOT NULL, 
    next_at_ms BIGINT NOT NULL, 
    updated_at_ms BIGINT NOT NULL, 
    PRIMARY KEY (environment, topic, consumer_group, unique_key)
);

COMMENT ON TABLE reconciler_candidate IS 'One row a key that was due and verified: verdict and evidence.';

COMMENT ON COLUMN reconciler_candidate.environment IS 'Environment.';

COMMENT ON COLUMN reconciler_candidate.topic IS 'Business topic.';

COMMENT ON COLUMN reconciler_candidate.consumer_group IS 'The group.';

COMMENT ON COLUMN reconciler_candidate.unique_key IS 'UNIQ_KEY.';

COMMENT ON COLUMN reconciler_candidate.shard IS 'Shard.';

COMMENT ON COLUMN reconciler_candidate.state IS 'OPEN, SETTLED or QUARANTINED.';

COMMENT ON COLUMN reconciler_candidate.verdict IS 'The latest verdict.';

COMMENT ON COLUMN reconciler_candidate.loss_verdict IS 'The first verdict that meant a loss; never changed.';

COMMENT ON COLUMN reconciler_candidate.evidence IS 'What each witness answered.';

COMMENT ON COLUMN reconciler_candidate.attempts IS 'Verifications so far.';

COMMENT ON COLUMN reconciler_candidate.first_seen_ms IS 'Redis TIME of the round that first saw the key.';

COMMENT ON COLUMN reconciler_candidate.next_at_ms IS 'Not verified again before this time.';

COMMENT ON COLUMN reconciler_candidate.updated_at_ms IS 'Last change.';

CREATE INDEX ix_reconciler_candidate_environment_state_next ON reconciler_candidate (environment, state, next_at_ms);

CREATE INDEX ix_reconciler_candidate_unique ON reconciler_candidate (unique_key);

CREATE TABLE reconciler_repair (
    environment VARCHAR(160) NOT NULL, 
    topic VARCHAR(160) NOT NULL, 
    scope VARCHAR(160) NOT NULL, 
    unique_key VARCHAR(64) NOT NULL, 
    state VARCHAR(32) NOT NULL, 
    rung VARCHAR(32) NOT NULL, 
    token VARCHAR(160), 
    lease_until_ms BIGINT, 
    attempts INTEGER NOT NULL, 
    next_at_ms BIGINT NOT NULL, 
    target TEXT, 
    answer TEXT, 
    message TEXT, 
    created_at_ms BIGINT NOT NULL, 
    sent_at_ms BIGINT, 
    done_at_ms BIGINT, 
    PRIMARY KEY (environment, topic, scope, unique_key)
);

COMMENT ON TABLE reconciler_repair IS 'One row a repair: END and republish once a key (scope ''*''), a hand-over once a key and group.';

COMMENT ON COLUMN reconciler_repair.environment IS 'Environment.';

COMMENT ON COLUMN reconciler_repair.topic IS 'Business topic.';

COMMENT ON COLUMN reconciler_repair.scope IS '''*'', or the group of a hand-over.';

COMMENT ON COLUMN reconciler_repair.unique_key IS 'UNIQ_KEY.';

COMMENT ON COLUMN reconciler_repair.state IS 'OPEN, SENDING, SENT, DONE or FAILED.';

COMMENT ON COLUMN reconciler_repair.rung IS 'end, republish or hand-over.';

COMMENT ON COLUMN reconciler_repair.token IS 'Owner of the claim.';

COMMENT ON COLUMN reconciler_repair.lease_until_ms IS 'End of the claim; after it the row is free.';

COMMENT ON COLUMN reconciler_repair.attempts IS 'Sends so far: written before a byte leaves.';

COMMENT ON COLUMN reconciler_repair.next_at_ms IS 'Not tried again before this time.';

COMMENT ON COLUMN reconciler_repair.target IS 'Broker and offsets that were aimed at.';

COMMENT ON COLUMN reconciler_repair.answer IS 'What the broker or the handler answered.';

COMMENT ON COLUMN reconciler_repair.message IS 'Hand-over: topic, properties, body (base64); emptied at DONE.';

COMMENT ON COLUMN reconciler_repair.created_at_ms IS 'When the loss was proved.';

COMMENT ON COLUMN reconciler_repair.sent_at_ms IS 'Last send.';

COMMENT ON COLUMN reconciler_repair.done_at_ms IS 'When every group''s inbox had the key.';

CREATE INDEX ix_reconciler_repair_environment_state_next ON reconciler_repair (environment, state, next_at_ms);

CREATE INDEX ix_reconciler_repair_unique ON reconciler_repair (unique_key);

CREATE TABLE reconciler_round (
    environment VARCHAR(160) NOT NULL, 
    topic VARCHAR(160) NOT NULL, 
    consumer_group VARCHAR(160) NOT NULL, 
    shard INTEGER NOT NULL, 
    epoch VARCHAR(160) NOT NULL, 
    generation BIGINT NOT NULL, 
    at_ms BIGINT NOT NULL, 
    offsets TEXT NOT NULL, 
    announced BIGINT NOT NULL, 
    matched BIGINT NOT NULL, 
    pending_before BIGINT NOT NULL, 
    pending_added BIGINT NOT NULL, 
    pending_matched BIGINT NOT NULL, 
    pending_after BIGINT NOT NULL, 
    void INTEGER NOT NULL, 
    stored_at_ms BIGINT NOT NULL, 
    PRIMARY KEY (environment, topic, consumer_group, shard, epoch, generation)
);

COMMENT ON TABLE reconciler_round IS 'One row a round that ran: its counts and the announcement offsets it covered.';

COMMENT ON COLUMN reconciler_round.environment IS 'Environment.';

COMMENT ON COLUMN reconciler_round.topic IS 'Business topic.';

COMMENT ON COLUMN reconciler_round.consumer_group IS 'The group.';

COMMENT ON COLUMN reconciler_round.shard IS 'Shard.';

COMMENT ON COLUMN reconciler_round.epoch IS 'Redis memory the round ran in.';

COMMENT ON COLUMN reconciler_round.generation IS 'The fence after the round.';

COMMENT ON COLUMN reconciler_round.at_ms IS 'Redis TIME of the round.';

COMMENT ON COLUMN reconciler_round.offsets IS '{"broker/queue": next offset} when the round ran.';

COMMENT ON COLUMN reconciler_round.announced IS 'Keys in the half set.';

COMMENT ON COLUMN reconciler_round.matched IS 'Of those, consumed already.';

COMMENT ON COLUMN reconciler_round.pending_before IS 'Pending before the round.';

COMMENT ON COLUMN reconciler_round.pending_added IS 'New in pending.';

COMMENT ON COLUMN reconciler_round.pending_matched IS 'Left pending because they were consumed.';

COMMENT ON COLUMN reconciler_round.pending_after IS 'Pending after the round.';

COMMENT ON COLUMN reconciler_round.void IS '1: Redis fell back to a memory before this round, which counts as never run.';

COMMENT ON COLUMN reconciler_round.stored_at_ms IS 'When the row was written.';

CREATE INDEX ix_reconciler_round_environment_stored ON reconciler_round (environment, stored_at_ms);

CREATE TABLE reconciler_floor (
    environment VARCHAR(160) NOT NULL, 
    topic VARCHAR(160) NOT NULL, 
    consumer_group VARCHAR(160) NOT NULL, 
    broker VARCHAR(160) NOT NULL, 
    queue_id INTEGER NOT NULL, 
    queue_offset BIGINT NOT NULL, 
    updated_at_ms BIGINT NOT NULL, 
    PRIMARY KEY (environment, topic, consumer_group, broker, queue_id)
);

COMMENT ON TABLE reconciler_floor IS 'Everything announced below this offset was matched or settled: where to start when Redis lost everything.';

COMMENT ON COLUMN reconciler_floor.environment IS 'Environment.';

COMMENT ON COLUMN reconciler_floor.topic IS 'Business topic.';

COMMENT ON COLUMN reconciler_floor.consumer_group IS 'The group.';

COMMENT ON COLUMN reconciler_floor.broker IS 'Broker of the unique-key topic''s queue.';

COMMENT ON COLUMN reconciler_floor.queue_id IS 'Queue number.';

COMMENT ON COLUMN reconciler_floor.queue_offset IS 'Lowest offset with a key that may be neither matched nor settled.';

COMMENT ON COLUMN reconciler_floor.updated_at_ms IS 'Last change.';

CREATE TABLE reconciler_outage (
    environment VARCHAR(160) NOT NULL, 
    started_at_ms BIGINT NOT NULL, 
    reason VARCHAR(32) NOT NULL, 
    noticed_by VARCHAR(160) NOT NULL, 
    scan_position TEXT, 
    scanned BIGINT NOT NULL, 
    closed_at_ms BIGINT, 
    PRIMARY KEY (environment, started_at_ms)
);

COMMENT ON TABLE reconciler_outage IS 'One row an outage: Redis was away or lost its memory. Open while closed_at_ms is NULL.';

COMMENT ON COLUMN reconciler_outage.environment IS 'Environment.';

COMMENT ON COLUMN reconciler_outage.started_at_ms IS 'Start, or the last stored round before it.';

COMMENT ON COLUMN reconciler_outage.reason IS 'AWAY, MEMORY_LOST or UNSAFE.';

COMMENT ON COLUMN reconciler_outage.noticed_by IS 'Process that opened the row.';

COMMENT ON COLUMN reconciler_outage.scan_position IS 'Progress of the inbox scan.';

COMMENT ON COLUMN reconciler_outage.scanned IS 'Inbox rows put back into commit sets.';

COMMENT ON COLUMN reconciler_outage.closed_at_ms IS 'End of the outage.';

CREATE TABLE reconciler_hold (
    environment VARCHAR(160) NOT NULL, 
    topic VARCHAR(160) NOT NULL, 
    kind VARCHAR(32) NOT NULL, 
    since_ms BIGINT NOT NULL, 
    by VARCHAR(160) NOT NULL, 
    reason TEXT NOT NULL, 
    PRIMARY KEY (environment, topic, kind)
);

COMMENT ON TABLE reconciler_hold IS 'Repairs of a topic are stopped: by a person (HOLD) or by the circuit breaker (BREAKER).';

COMMENT ON COLUMN reconciler_hold.environment IS 'Environment.';

COMMENT ON COLUMN reconciler_hold.topic IS 'Business topic.';

COMMENT ON COLUMN reconciler_hold.kind IS 'HOLD or BREAKER.';

COMMENT ON COLUMN reconciler_hold.since_ms IS 'Time of the event.';

COMMENT ON COLUMN reconciler_hold.by IS 'User or process.';

COMMENT ON COLUMN reconciler_hold.reason IS 'Reason.';

CREATE TABLE reconciler_quarantine (
    environment VARCHAR(160) NOT NULL, 
    unique_key_topic VARCHAR(160) NOT NULL, 
    broker VARCHAR(160) NOT NULL, 
    queue_id INTEGER NOT NULL, 
    queue_offset BIGINT NOT NULL, 
    reason VARCHAR(32) NOT NULL, 
    detail TEXT NOT NULL, 
    body BYTEA NOT NULL, 
    seen_at_ms BIGINT NOT NULL, 
    PRIMARY KEY (environment, unique_key_topic, broker, queue_id, queue_offset)
);

COMMENT ON TABLE reconciler_quarantine IS 'Announcements that were refused: counted and kept, the queue moved on.';

COMMENT ON COLUMN reconciler_quarantine.environment IS 'Environment of the refusing process.';

COMMENT ON COLUMN reconciler_quarantine.unique_key_topic IS 'Topic it came from.';

COMMENT ON COLUMN reconciler_quarantine.broker IS 'Broker.';

COMMENT ON COLUMN reconciler_quarantine.queue_id IS 'Queue number.';

COMMENT ON COLUMN reconciler_quarantine.queue_offset IS 'Offset.';

COMMENT ON COLUMN reconciler_quarantine.reason IS 'MALFORMED, VERSION, ENVIRONMENT, TOPIC, SIGNATURE, SIZE or SHAPE.';

COMMENT ON COLUMN reconciler_quarantine.detail IS 'The error''s message.';

COMMENT ON COLUMN reconciler_quarantine.body IS 'The first 4 KiB of the body.';

COMMENT ON COLUMN reconciler_quarantine.seen_at_ms IS 'Time of the event.';

INSERT INTO reconciler_alembic_version_ledger (version_num) VALUES ('0001_ledger') RETURNING reconciler_alembic_version_ledger.version_num;

COMMIT;

BEGIN;

-- Running upgrade 0001_ledger -> 0002_first_send

ALTER TABLE reconciler_repair ADD COLUMN first_sent_at_ms BIGINT;

COMMENT ON COLUMN reconciler_repair.first_sent_at_ms IS 'First send; NULL also where an older release sent it.';

UPDATE reconciler_alembic_version_ledger SET version_num='0002_first_send' WHERE reconciler_alembic_version_ledger.version_num = '0001_ledger';

COMMIT;

BEGIN;

-- Running upgrade 0002_first_send -> 0003_broker

CREATE TABLE reconciler_broker (
    environment VARCHAR(160) NOT NULL, 
    topic VARCHAR(160) NOT NULL, 
    broker VARCHAR(160) NOT NULL, 
    gone_since_ms BIGINT, 
    PRIMARY KEY (environment, topic, broker)
);

COMMENT ON TABLE reconciler_broker IS 'One row a broker that was seen in a topic''s route: while it is away, nothing of the topic is ABSENT.';

COMMENT ON COLUMN reconciler_broker.environment IS 'Environment.';

COMMENT ON COLUMN reconciler_broker.topic IS 'Business topic.';

COMMENT ON COLUMN reconciler_broker.broker IS 'Broker name.';

COMMENT ON COLUMN reconciler_broker.gone_since_ms IS 'First round that missed it in the route; NULL: it is there.';

UPDATE reconciler_alembic_version_ledger SET version_num='0003_broker' WHERE reconciler_alembic_version_ledger.version_num = '0002_first_send';

COMMIT;

BEGIN;

-- Running upgrade 0003_broker -> 0004_operator_action

CREATE TABLE reconciler_operator_action (
    action_id VARCHAR(64) NOT NULL, 
    environment VARCHAR(160) NOT NULL, 
    by VARCHAR(160) NOT NULL, 
    command VARCHAR(32) NOT NULL, 
    topic VARCHAR(160), 
    consumer_group VARCHAR(160), 
    unique_key VARCHAR(64), 
    detail TEXT NOT NULL, 
    started_at_ms BIGINT NOT NULL, 
    ended_at_ms BIGINT, 
    result TEXT, 
    PRIMARY KEY (action_id)
);

COMMENT ON TABLE reconciler_operator_action IS 'One row an action that a person took by hand, written before it is done: by whom, what, and its result.';

COMMENT ON COLUMN reconciler_operator_action.action_id IS 'Random.';

COMMENT ON COLUMN reconciler_operator_action.environment IS 'Environment.';

COMMENT ON COLUMN reconciler_operator_action.by IS 'User.';

COMMENT ON COLUMN reconciler_operator_action.command IS 'hold, resume, repair, dismiss or rebuild.';

COMMENT ON COLUMN reconciler_operator_action.topic IS 'Business topic; NULL: of all.';

COMMENT ON COLUMN reconciler_operator_action.consumer_group IS 'The group; NULL: of all.';

COMMENT ON COLUMN reconciler_operator_action.unique_key IS 'UNIQ_KEY, where it was done to one message.';

COMMENT ON COLUMN reconciler_operator_action.detail IS 'The reason or options that were given.';

COMMENT ON COLUMN reconciler_operator_action.started_at_ms IS 'Just before it was done.';

COMMENT ON COLUMN reconciler_operator_action.ended_at_ms IS 'NULL: under way, or the process died in it.';

COMMENT ON COLUMN reconciler_operator_action.result IS 'What was done, or the error.';

CREATE INDEX ix_reconciler_operator_action_environment_started ON reconciler_operator_action (environment, started_at_ms);

CREATE INDEX ix_reconciler_operator_action_unique ON reconciler_operator_action (unique_key);

UPDATE reconciler_alembic_version_ledger SET version_num='0004_operator_action' WHERE reconciler_alembic_version_ledger.version_num = '0003_broker';

COMMIT;

BEGIN;

-- Running upgrade 0004_operator_action -> 0005_ask_again

ALTER TABLE reconciler_candidate ADD COLUMN ask_again_at_ms BIGINT;

COMMENT ON COLUMN reconciler_candidate.ask_again_at_ms IS 'After this the databases are asked about a closed row again; NULL: they are not.';

CREATE INDEX ix_reconciler_candidate_environment_topic_consumer_ask ON reconciler_candidate (environment, topic, consumer_group, ask_again_at_ms) WHERE ask_again_at_ms IS NOT NULL;

UPDATE reconciler_alembic_version_ledger SET version_num='0005_ask_again' WHERE reconciler_alembic_version_ledger.version_num = '0004_operator_action';

COMMIT;

BEGIN;

-- Running upgrade 0005_ask_again -> 0006_job

CREATE TABLE reconciler_job (
    job_id VARCHAR(64) NOT NULL, 
    environment VARCHAR(160) NOT NULL, 
    kind VARCHAR(32) NOT NULL, 
    request TEXT NOT NULL, 
    by VARCHAR(160) NOT NULL, 
    state VARCHAR(32) NOT NULL, 
    token VARCHAR(160), 
    lease_until_ms BIGINT, 
    attempts INTEGER NOT NULL, 
    work TEXT, 
    done BIGINT NOT NULL, 
    total BIGINT, 
    counts TEXT, 
    lines TEXT, 
    error TEXT, 
    cancelled_by VARCHAR(160), 
    created_at_ms BIGINT NOT NULL, 
    started_at_ms BIGINT, 
    ended_at_ms BIGINT, 
    PRIMARY KEY (job_id)
);

COMMENT ON TABLE reconciler_job IS 'One row a job: a long action that a person asked for, done by one process at a time, by any that can.';

COMMENT ON COLUMN reconciler_job.job_id IS 'Random, or made of the idempotency key of the request.';

COMMENT ON COLUMN reconciler_job.environment IS 'Environment.';

COMMENT ON COLUMN reconciler_job.kind IS 'REPAIR or REBUILD.';

COMMENT ON COLUMN reconciler_job.request IS 'What was asked for: keys, topic and group or a time, and the reason.';

COMMENT ON COLUMN reconciler_job.by IS 'User.';

COMMENT ON COLUMN reconciler_job.state IS 'QUEUED, RUNNING, DONE, FAILED or CANCELLED.';

COMMENT ON COLUMN reconciler_job.token IS 'Owner of the claim.';

COMMENT ON COLUMN reconciler_job.lease_until_ms IS 'End of the claim; before it no other process takes the job.';

COMMENT ON COLUMN reconciler_job.attempts IS 'Claims since the job last came forward: an owner that dies gives none back.';

COMMENT ON COLUMN reconciler_job.work IS 'Repair: topic, group and key of each message, in order.';

COMMENT ON COLUMN reconciler_job.done IS 'Repair: keys that are finished, from the first on. Rebuild: inbox rows.';

COMMENT ON COLUMN reconciler_job.total IS 'Repair: keys. NULL: not known.';

COMMENT ON COLUMN reconciler_job.counts IS 'Repair: finished keys by outcome.';

COMMENT ON COLUMN reconciler_job.lines IS 'Repair: the first keys that did not end well, and why.';

COMMENT ON COLUMN reconciler_job.error IS 'Why it failed, or what it waits for.';

COMMENT ON COLUMN reconciler_job.cancelled_by IS 'Who wished that it ends before its time.';

COMMENT ON COLUMN reconciler_job.created_at_ms IS 'When it was asked for.';

COMMENT ON COLUMN reconciler_job.started_at_ms IS 'First claim.';

COMMENT ON COLUMN reconciler_job.ended_at_ms IS 'When it was DONE, FAILED or CANCELLED.';

CREATE INDEX ix_reconciler_job_environment_created ON reconciler_job (environment, created_at_ms);

CREATE INDEX ix_reconciler_job_environment_state_created ON reconciler_job (environment, state, created_at_ms);

CREATE TABLE reconciler_idempotency_key (
    environment VARCHAR(160) NOT NULL, 
    by VARCHAR(160) NOT NULL, 
    idempotency_key VARCHAR(160) NOT NULL, 
    digest BYTEA NOT NULL, 
    state VARCHAR(32) NOT NULL, 
    token VARCHAR(160), 
    lease_until_ms BIGINT, 
    status INTEGER, 
    answer TEXT, 
    created_at_ms BIGINT NOT NULL, 
    PRIMARY KEY (environment, by, idempotency_key)
);

COMMENT ON TABLE reconciler_idempotency_key IS 'One row a request with an idempotency key: the same request again is answered from here. Kept for a day.';

COMMENT ON COLUMN reconciler_idempotency_key.environment IS 'Environment.';

COMMENT ON COLUMN reconciler_idempotency_key.by IS 'User: the keys of two users are not the same key.';

COMMENT ON COLUMN reconciler_idempotency_key.idempotency_key IS 'The act, and a digest of the client''s key.';

COMMENT ON COLUMN reconciler_idempotency_key.digest IS 'SHA-256 of the request: another request with the same key is refused.';

COMMENT ON COLUMN reconciler_idempotency_key.state IS 'UNDER_WAY or ANSWERED.';

COMMENT ON COLUMN reconciler_idempotency_key.token IS 'Who works on it.';

COMMENT ON COLUMN reconciler_idempotency_key.lease_until_ms IS 'After it a request that is UNDER_WAY counts as dead.';

COMMENT ON COLUMN reconciler_idempotency_key.status IS 'Status of the answer.';

COMMENT ON COLUMN reconciler_idempotency_key.answer IS 'The answer.';

COMMENT ON COLUMN reconciler_idempotency_key.created_at_ms IS 'First request.';

CREATE INDEX ix_reconciler_idempotency_key_environment_created ON reconciler_idempotency_key (environment, created_at_ms);

UPDATE reconciler_alembic_version_ledger SET version_num='0006_job' WHERE reconciler_alembic_version_ledger.version_num = '0005_ask_again';

COMMIT;

BEGIN;

-- Running upgrade 0006_job -> 0007_environment

CREATE TABLE reconciler_environment (
    environment VARCHAR(160) NOT NULL, 
    brokers TEXT NOT NULL, 
    by VARCHAR(160) NOT NULL, 
    renewed_at_ms BIGINT NOT NULL, 
    PRIMARY KEY (environment)
);

COMMENT ON TABLE reconciler_environment IS 'One row an environment: the cluster that its processes run with. Processes of another cluster are refused.';

COMMENT ON COLUMN reconciler_environment.environment IS 'Environment.';

COMMENT ON COLUMN reconciler_environment.brokers IS 'List of "cluster/broker at address": what that process knows.';

COMMENT ON COLUMN reconciler_environment.by IS 'Process that wrote the row last.';

COMMENT ON COLUMN reconciler_environment.renewed_at_ms IS 'When it did; 30 s later the row says nothing any more.';

UPDATE reconciler_alembic_version_ledger SET version_num='0007_environment' WHERE reconciler_alembic_version_ledger.version_num = '0006_job';

COMMIT;

BEGIN;

-- Running upgrade 0007_environment -> 0008_pages

COMMIT;

DROP INDEX CONCURRENTLY IF EXISTS ix_reconciler_candidate_page_first;

CREATE INDEX CONCURRENTLY ix_reconciler_candidate_page_first ON reconciler_candidate (environment, first_seen_ms, topic, consumer_group, unique_key);

BEGIN;

COMMIT;

DROP INDEX CONCURRENTLY IF EXISTS ix_reconciler_candidate_page_state_first;

CREATE INDEX CONCURRENTLY ix_reconciler_candidate_page_state_first ON reconciler_candidate (environment, state, first_seen_ms, topic, consumer_group, unique_key);

BEGIN;

COMMIT;

DROP INDEX CONCURRENTLY IF EXISTS ix_reconciler_repair_page_created;

CREATE INDEX CONCURRENTLY ix_reconciler_repair_page_created ON reconciler_repair (environment, created_at_ms, topic, scope, unique_key);

BEGIN;

COMMIT;

DROP INDEX CONCURRENTLY IF EXISTS ix_reconciler_repair_page_state_created;

CREATE INDEX CONCURRENTLY ix_reconciler_repair_page_state_created ON reconciler_repair (environment, state, created_at_ms, topic, scope, unique_key);

BEGIN;

COMMIT;

DROP INDEX CONCURRENTLY IF EXISTS ix_reconciler_quarantine_page_seen;

CREATE INDEX CONCURRENTLY ix_reconciler_quarantine_page_seen ON reconciler_quarantine (environment, seen_at_ms, unique_key_topic, broker, queue_id, queue_offset);

BEGIN;

COMMIT;

DROP INDEX CONCURRENTLY IF EXISTS ix_reconciler_candidate_page_loss_first;

CREATE INDEX CONCURRENTLY ix_reconciler_candidate_page_loss_first ON reconciler_candidate (environment, first_seen_ms, topic, consumer_group, unique_key) WHERE loss_verdict IS NOT NULL;

BEGIN;

UPDATE reconciler_alembic_version_ledger SET version_num='0008_pages' WHERE reconciler_alembic_version_ledger.version_num = '0007_environment';

COMMIT;

BEGIN;

-- Running upgrade 0008_pages -> 0009_counts

COMMIT;

DROP INDEX CONCURRENTLY IF EXISTS ix_reconciler_candidate_count;

CREATE INDEX CONCURRENTLY ix_reconciler_candidate_count ON reconciler_candidate (environment, topic, consumer_group, state, verdict, loss_verdict, first_seen_ms) WHERE first_seen_ms >= '-9223372036854775808'::bigint;

BEGIN;

COMMIT;

DROP INDEX CONCURRENTLY IF EXISTS ix_reconciler_repair_count;

CREATE INDEX CONCURRENTLY ix_reconciler_repair_count ON reconciler_repair (environment, topic, scope, state, rung, attempts) WHERE attempts >= '-9223372036854775808'::bigint;

BEGIN;

UPDATE reconciler_alembic_version_ledger SET version_num='0009_counts' WHERE reconciler_alembic_version_ledger.version_num = '0008_pages';

COMMIT;

BEGIN;

-- Running upgrade 0009_counts -> 0010_verified_repairs

COMMIT;

DROP INDEX CONCURRENTLY IF EXISTS ix_reconciler_repair_environment_done;

CREATE INDEX CONCURRENTLY ix_reconciler_repair_environment_done ON reconciler_repair (environment, done_at_ms) WHERE done_at_ms IS NOT NULL;

BEGIN;

UPDATE reconciler_alembic_version_ledger SET version_num='0010_verified_repairs' WHERE reconciler_alembic_version_ledger.version_num = '0009_counts';

COMMIT;

BEGIN;

-- Running upgrade 0010_verified_repairs -> 0011_notice

CREATE TABLE reconciler_notice (
    environment VARCHAR(160) NOT NULL, 
    notifier VARCHAR(160) NOT NULL, 
    kind VARCHAR(32) NOT NULL, 
    topic VARCHAR(160) NOT NULL, 
    consumer_group VARCHAR(160) NOT NULL, 
    version INTEGER NOT NULL, 
    is_open INTEGER NOT NULL, 
    mark_ms BIGINT NOT NULL, 
    mark_count BIGINT NOT NULL, 
    since_ms BIGINT, 
    told_at_ms BIGINT, 
    trouble_at_ms BIGINT, 
    notice TEXT, 
    next_at_ms BIGINT NOT NULL, 
    token VARCHAR(160), 
    lease_until_ms BIGINT, 
    attempts INTEGER NOT NULL, 
    error TEXT, 
    is_refused INTEGER NOT NULL, 
    created_at_ms BIGINT NOT NULL, 
    PRIMARY KEY (environment, notifier, kind, topic, consumer_group)
);

COMMENT ON TABLE reconciler_notice IS 'One row a conversation: what one notifier told of one kind of trouble, and the message that waits.';

COMMENT ON COLUMN reconciler_notice.environment IS 'Environment.';

COMMENT ON COLUMN reconciler_notice.notifier IS 'Name of the notifier.';

COMMENT ON COLUMN reconciler_notice.kind IS 'What it is about: a word of [[notifiers]] notices.';

COMMENT ON COLUMN reconciler_notice.topic IS 'Business topic; empty: of no single one.';

COMMENT ON COLUMN reconciler_notice.consumer_group IS 'The group; empty: of no single one.';

COMMENT ON COLUMN reconciler_notice.version IS 'Grows with every change: a process replaces only the version that it has read.';

COMMENT ON COLUMN reconciler_notice.is_open IS '1: the receiver knows of the trouble, and not of its end.';

COMMENT ON COLUMN reconciler_notice.mark_ms IS 'Losses, outages: all until then were told. Others: time of the newest told.';

COMMENT ON COLUMN reconciler_notice.mark_count IS 'How many of those after mark_ms, or of those that stood, were told.';

COMMENT ON COLUMN reconciler_notice.since_ms IS 'When the trouble began that was told last.';

COMMENT ON COLUMN reconciler_notice.told_at_ms IS 'When a message was sent last.';

COMMENT ON COLUMN reconciler_notice.trouble_at_ms IS 'When one was sent last that not only told an end.';

COMMENT ON COLUMN reconciler_notice.notice IS 'The message that waits, and what is told with it.';

COMMENT ON COLUMN reconciler_notice.next_at_ms IS 'It is not sent before this time.';

COMMENT ON COLUMN reconciler_notice.token IS 'Owner of the claim.';

COMMENT ON COLUMN reconciler_notice.lease_until_ms IS 'End of the claim; after it another process sends it.';

COMMENT ON COLUMN reconciler_notice.attempts IS 'Tries since a message was sent: written before a byte leaves.';

COMMENT ON COLUMN reconciler_notice.error IS 'Why the last try failed.';

COMMENT ON COLUMN reconciler_notice.is_refused IS '1: the receiver refused it; a person has to mend something.';

COMMENT ON COLUMN reconciler_notice.created_at_ms IS 'When the row was made; of the oldest row: when the notifier began.';

ALTER TABLE reconciler_candidate ADD COLUMN loss_at_ms BIGINT;

COMMENT ON COLUMN reconciler_candidate.loss_at_ms IS 'When the loss was proved; NULL: it was not, or by an older release.';

COMMIT;

DROP INDEX CONCURRENTLY IF EXISTS ix_reconciler_candidate_environment_topic_consumer_loss;

CREATE INDEX CONCURRENTLY ix_reconciler_candidate_environment_topic_consumer_loss ON reconciler_candidate (environment, topic, consumer_group, loss_at_ms) WHERE loss_at_ms IS NOT NULL;

BEGIN;

UPDATE reconciler_alembic_version_ledger SET version_num='0011_notice' WHERE reconciler_alembic_version_ledger.version_num = '0010_verified_repairs';

COMMIT;


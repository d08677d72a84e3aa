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

COMMENT ON COLUMN reconciler_candidate.next_at_ms IS 'Not verified again before.';

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

COMMENT ON COLUMN reconciler_repair.lease_until_ms IS 'The claim is free after this.';

COMMENT ON COLUMN reconciler_repair.attempts IS 'Sends so far: written before a byte leaves.';

COMMENT ON COLUMN reconciler_repair.next_at_ms IS 'Not tried again before.';

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

COMMENT ON COLUMN reconciler_round.void IS '1: Redis fell back behind this round; it never happened.';

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

COMMENT ON COLUMN reconciler_floor.queue_offset IS 'Lowest offset that may still matter.';

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

COMMENT ON TABLE reconciler_outage IS 'One row a time during which Redis was away or lost its memory; open while closed_at_ms is NULL.';

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

COMMENT ON COLUMN reconciler_hold.since_ms IS 'When.';

COMMENT ON COLUMN reconciler_hold.by IS 'User or process.';

COMMENT ON COLUMN reconciler_hold.reason IS 'Why.';

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

COMMENT ON COLUMN reconciler_quarantine.seen_at_ms IS 'When.';

INSERT INTO reconciler_alembic_version_ledger (version_num) VALUES ('0001_ledger') RETURNING reconciler_alembic_version_ledger.version_num;

COMMIT;

INSERT INTO reconciler_candidate ("environment", "topic", "consumer_group", "unique_key", "shard", "state", "verdict", "loss_verdict", "evidence", "attempts", "first_seen_ms", "next_at_ms", "updated_at_ms") VALUES ('production', 'ORDERS', 'billing', 'C000020262E4F73CAE9D7FF5AAA99299', 0, 'SETTLED', 'CONSUMED', 'LOST_CONFIRM', '{"reason":"the inbox has the key","inbox":{"presence":"FOUND","detail":"inbox sqlite:///file%3A/tmp/tmpruvc5atf/world/billing.db?mode=rw&uri=true: FOUND (consumer, applied at 1795638017795)"},"outbox":{"presence":"FOUND","detail":"outbox of order-service: FOUND (SETTLED)"},"outbox_state":"SETTLED"}', 2, 1795638015365, 1795638022764, 1795638018764);
INSERT INTO reconciler_candidate ("environment", "topic", "consumer_group", "unique_key", "shard", "state", "verdict", "loss_verdict", "evidence", "attempts", "first_seen_ms", "next_at_ms", "updated_at_ms") VALUES ('production', 'ORDERS', 'billing', 'C000020262E4F73CAE9D7FF5AAA99298', 2, 'SETTLED', 'CONSUMED', 'LOST_CONFIRM', '{"reason":"the inbox has the key","inbox":{"presence":"FOUND","detail":"inbox sqlite:///file%3A/tmp/tmpruvc5atf/world/billing.db?mode=rw&uri=true: FOUND (consumer, applied at 1795638017836)"},"outbox":{"presence":"FOUND","detail":"outbox of order-service: FOUND (SETTLED)"},"outbox_state":"SETTLED"}', 2, 1795638015485, 1795638022782, 1795638018782);
INSERT INTO reconciler_candidate ("environment", "topic", "consumer_group", "unique_key", "shard", "state", "verdict", "loss_verdict", "evidence", "attempts", "first_seen_ms", "next_at_ms", "updated_at_ms") VALUES ('production', 'ORDERS', 'billing', 'C000020262E4F73CAE9D7FF5F093929A', 1, 'SETTLED', 'REJECTED', NULL, '{"reason":"announced, but the outbox has no row","inbox":{"presence":"ABSENT","detail":"inbox sqlite:///file%3A/tmp/tmpruvc5atf/world/billing.db?mode=rw&uri=true: ABSENT (no row)"},"outbox":{"presence":"ABSENT","detail":"outbox of order-service: ABSENT (no row)"},"committed_copies":{"presence":"ABSENT","detail":"embedded: ABSENT (no hit)"}}', 1, 1795638024764, 1795638029073, 1795638027073);
INSERT INTO reconciler_candidate ("environment", "topic", "consumer_group", "unique_key", "shard", "state", "verdict", "loss_verdict", "evidence", "attempts", "first_seen_ms", "next_at_ms", "updated_at_ms") VALUES ('production', 'ORDERS', 'billing', 'C000020262E4F73CAE9D7FF5FB76929B', 1, 'OPEN', 'LAGGING', NULL, '{"reason":"the group''s offset has not reached the copy","inbox":{"presence":"ABSENT","detail":"inbox sqlite:///file%3A/tmp/tmpruvc5atf/world/billing.db?mode=rw&uri=true: ABSENT (no row)"},"outbox":{"presence":"FOUND","detail":"outbox of order-service: FOUND (ANNOUNCED)"},"committed_copies":{"presence":"FOUND","detail":"embedded: FOUND (1 records)"},"outbox_state":"ANNOUNCED","committed_at":"embedded@12131"}', 4, 1795638027955, 1795638064363, 1795638048363);
INSERT INTO reconciler_candidate ("environment", "topic", "consumer_group", "unique_key", "shard", "state", "verdict", "loss_verdict", "evidence", "attempts", "first_seen_ms", "next_at_ms", "updated_at_ms") VALUES ('production', 'ORDERS', 'billing', 'C000020262E4F73CAE9D7FF5FB9F929E', 1, 'OPEN', 'LOST_CONFIRM', 'LOST_CONFIRM', '{"reason":"repair is SENT on rung end","inbox":{"presence":"ABSENT","detail":"inbox sqlite:///file%3A/tmp/tmpruvc5atf/world/billing.db?mode=rw&uri=true: ABSENT (no row)"}}', 9, 1795638027955, 1795638051454, 1795638050454);
INSERT INTO reconciler_candidate ("environment", "topic", "consumer_group", "unique_key", "shard", "state", "verdict", "loss_verdict", "evidence", "attempts", "first_seen_ms", "next_at_ms", "updated_at_ms") VALUES ('production', 'ORDERS', 'billing', 'C000020262E4F73CAE9D7FF5FB76929C', 3, 'OPEN', 'LAGGING', NULL, '{"reason":"the group''s offset has not reached the copy","inbox":{"presence":"ABSENT","detail":"inbox sqlite:///file%3A/tmp/tmpruvc5atf/world/billing.db?mode=rw&uri=true: ABSENT (no row)"},"outbox":{"presence":"FOUND","detail":"outbox of order-service: FOUND (ANNOUNCED)"},"committed_copies":{"presence":"FOUND","detail":"embedded: FOUND (1 records)"},"outbox_state":"ANNOUNCED","committed_at":"embedded@13340"}', 4, 1795638028061, 1795638064369, 1795638048369);
INSERT INTO reconciler_candidate ("environment", "topic", "consumer_group", "unique_key", "shard", "state", "verdict", "loss_verdict", "evidence", "attempts", "first_seen_ms", "next_at_ms", "updated_at_ms") VALUES ('production', 'ORDERS', 'billing', 'C000020262E4F73CAE9D7FF5FB9F929D', 3, 'OPEN', 'LOST_CONFIRM', 'LOST_CONFIRM', '{"reason":"repair is SENT on rung end","inbox":{"presence":"ABSENT","detail":"inbox sqlite:///file%3A/tmp/tmpruvc5atf/world/billing.db?mode=rw&uri=true: ABSENT (no row)"}}', 8, 1795638028061, 1795638051493, 1795638050493);
INSERT INTO reconciler_candidate ("environment", "topic", "consumer_group", "unique_key", "shard", "state", "verdict", "loss_verdict", "evidence", "attempts", "first_seen_ms", "next_at_ms", "updated_at_ms") VALUES ('production', 'ORDERS', 'billing', 'C000020262E4F73CAE9D7FF6180C92A0', 1, 'QUARANTINED', 'QUARANTINED', 'LOST_CONFIRM', '{"reason":"LOST_CONFIRM, and its repair is FAILED: no rung is left","inbox":{"presence":"ABSENT","detail":"inbox sqlite:///file%3A/tmp/tmpruvc5atf/world/billing.db?mode=rw&uri=true: ABSENT (no row)"},"outbox":{"presence":"FOUND","detail":"outbox of order-service: FOUND (ANNOUNCED)"},"committed_copies":{"presence":"ABSENT","detail":"embedded: ABSENT (no hit)"},"half_copies":{"presence":"FOUND","detail":"embedded: FOUND (3 records)"},"outbox_state":"ANNOUNCED","half_at":"embedded@23813","half_age_seconds":4.254}', 2, 1795638035312, 1795638042745, 1795638038745);
INSERT INTO reconciler_candidate ("environment", "topic", "consumer_group", "unique_key", "shard", "state", "verdict", "loss_verdict", "evidence", "attempts", "first_seen_ms", "next_at_ms", "updated_at_ms") VALUES ('production', 'ORDERS', 'billing', 'C000020262E4F73CAE9D7FF6180C929F', 2, 'OPEN', 'LOST_CONFIRM', 'LOST_CONFIRM', '{"reason":"repair is OPEN on rung end","inbox":{"presence":"ABSENT","detail":"inbox sqlite:///file%3A/tmp/tmpruvc5atf/world/billing.db?mode=rw&uri=true: ABSENT (no row)"}}', 5, 1795638035364, 1795638051475, 1795638050475);
INSERT INTO reconciler_candidate ("environment", "topic", "consumer_group", "unique_key", "shard", "state", "verdict", "loss_verdict", "evidence", "attempts", "first_seen_ms", "next_at_ms", "updated_at_ms") VALUES ('production', 'ORDERS', 'billing', 'C000020262E4F73CAE9D7FF6180C92A1', 3, 'OPEN', 'LOST_CONFIRM', 'LOST_CONFIRM', '{"reason":"repair is OPEN on rung end","inbox":{"presence":"ABSENT","detail":"inbox sqlite:///file%3A/tmp/tmpruvc5atf/world/billing.db?mode=rw&uri=true: ABSENT (no row)"}}', 4, 1795638035416, 1795638051493, 1795638050493);
INSERT INTO reconciler_floor ("environment", "topic", "consumer_group", "broker", "queue_id", "queue_offset", "updated_at_ms") VALUES ('production', 'ORDERS', 'billing', 'embedded', 1, 3, 1795638027985);
INSERT INTO reconciler_floor ("environment", "topic", "consumer_group", "broker", "queue_id", "queue_offset", "updated_at_ms") VALUES ('production', 'ORDERS', 'billing', 'embedded', 3, 1, 1795638015566);
INSERT INTO reconciler_floor ("environment", "topic", "consumer_group", "broker", "queue_id", "queue_offset", "updated_at_ms") VALUES ('production', 'ORDERS', 'billing', 'embedded', 0, 2, 1795638024739);
INSERT INTO reconciler_floor ("environment", "topic", "consumer_group", "broker", "queue_id", "queue_offset", "updated_at_ms") VALUES ('production', 'ORDERS', 'billing', 'embedded', 2, 1, 1795638018568);
INSERT INTO reconciler_hold ("environment", "topic", "kind", "since_ms", "by", "reason") VALUES ('production', 'ORDERS', 'HOLD', 1795638033168, 'operator root', 'month end');
INSERT INTO reconciler_outage ("environment", "started_at_ms", "reason", "noticed_by", "scan_position", "scanned", "closed_at_ms") VALUES ('production', 1795638039761, 'AWAY', 'vm:25436:3d45c657', '{"complete":true,"since_ms":1795637979761,"until_ms":{"ORDERS/billing":1795638017836},"rows":{"ORDERS/billing":5},"rounds":true}', 5, 1795638048140);
INSERT INTO reconciler_quarantine ("environment", "unique_key_topic", "broker", "queue_id", "queue_offset", "reason", "detail", "body", "seen_at_ms") VALUES ('production', 'RECONCILER_UNIQUE_KEY', 'embedded', 0, 1, 'MALFORMED', 'announcement is no UTF-8 JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)', '\x7b6e6f74206a736f6e', 1795638024262);
INSERT INTO reconciler_repair ("environment", "topic", "scope", "unique_key", "state", "rung", "token", "lease_until_ms", "attempts", "next_at_ms", "target", "answer", "message", "created_at_ms", "sent_at_ms", "done_at_ms") VALUES ('production', 'ORDERS', '*', 'C000020262E4F73CAE9D7FF5AAA99299', 'DONE', 'end', NULL, NULL, 1, 1795638023870, '{"broker":"embedded","topic":"RMQ_SYS_TRANS_HALF_TOPIC","queue_offset":10,"commit_log_offset":7707,"groups":[]}', 'the effect is there', NULL, 1795638017629, 1795638017783, 1795638023870);
INSERT INTO reconciler_repair ("environment", "topic", "scope", "unique_key", "state", "rung", "token", "lease_until_ms", "attempts", "next_at_ms", "target", "answer", "message", "created_at_ms", "sent_at_ms", "done_at_ms") VALUES ('production', 'ORDERS', '*', 'C000020262E4F73CAE9D7FF5AAA99298', 'DONE', 'end', NULL, NULL, 1, 1795638023882, '{"broker":"embedded","topic":"RMQ_SYS_TRANS_HALF_TOPIC","queue_offset":9,"commit_log_offset":7267,"groups":[]}', 'the effect is there', NULL, 1795638017662, 1795638017816, 1795638023882);
INSERT INTO reconciler_repair ("environment", "topic", "scope", "unique_key", "state", "rung", "token", "lease_until_ms", "attempts", "next_at_ms", "target", "answer", "message", "created_at_ms", "sent_at_ms", "done_at_ms") VALUES ('production', 'ORDERS', '*', 'C000020262E4F73CAE9D7FF5FB9F929E', 'SENT', 'end', NULL, NULL, 1, 1795638052985, '{"broker":"embedded","topic":"RMQ_SYS_TRANS_HALF_TOPIC","queue_offset":16,"commit_log_offset":16331,"groups":[]}', 'billing: LAGGING', NULL, 1795638030209, 1795638030264, NULL);
INSERT INTO reconciler_repair ("environment", "topic", "scope", "unique_key", "state", "rung", "token", "lease_until_ms", "attempts", "next_at_ms", "target", "answer", "message", "created_at_ms", "sent_at_ms", "done_at_ms") VALUES ('production', 'ORDERS', '*', 'C000020262E4F73CAE9D7FF5FB9F929D', 'SENT', 'end', NULL, NULL, 1, 1795638052992, '{"broker":"embedded","topic":"RMQ_SYS_TRANS_HALF_TOPIC","queue_offset":15,"commit_log_offset":15891,"groups":[]}', 'billing: LAGGING', NULL, 1795638030226, 1795638030288, NULL);
INSERT INTO reconciler_repair ("environment", "topic", "scope", "unique_key", "state", "rung", "token", "lease_until_ms", "attempts", "next_at_ms", "target", "answer", "message", "created_at_ms", "sent_at_ms", "done_at_ms") VALUES ('production', 'ORDERS', '*', 'C000020262E4F73CAE9D7FF6180C92A0', 'FAILED', 'end', NULL, NULL, 0, 1795638037759, NULL, 'no rung is left', NULL, 1795638037635, NULL, NULL);
INSERT INTO reconciler_repair ("environment", "topic", "scope", "unique_key", "state", "rung", "token", "lease_until_ms", "attempts", "next_at_ms", "target", "answer", "message", "created_at_ms", "sent_at_ms", "done_at_ms") VALUES ('production', 'ORDERS', '*', 'C000020262E4F73CAE9D7FF6180C929F', 'SENDING', 'end', 'host-1:4711', 1795638114277, 1, 1795638054321, NULL, NULL, NULL, 1795638037643, 1795638054321, NULL);
INSERT INTO reconciler_repair ("environment", "topic", "scope", "unique_key", "state", "rung", "token", "lease_until_ms", "attempts", "next_at_ms", "target", "answer", "message", "created_at_ms", "sent_at_ms", "done_at_ms") VALUES ('production', 'ORDERS', '*', 'C000020262E4F73CAE9D7FF6180C92A1', 'OPEN', 'end', NULL, NULL, 0, 1795638037664, NULL, NULL, NULL, 1795638037664, NULL, NULL);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 0, 'production:1117dde903cf3afb', 1, 1795638015365, '{"embedded/0":1}', 1, 0, 0, 1, 0, 1, 0, 1795638015377);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 1, 'production:19f4e885255cb56f', 1, 1795638015420, '{"embedded/1":2}', 2, 2, 0, 0, 0, 0, 0, 1795638015426);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 2, 'production:4cc5aedd11ff7b01', 1, 1795638015485, '{"embedded/2":1}', 1, 0, 0, 1, 0, 1, 0, 1795638015489);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 3, 'production:4a04fa35f2173d24', 1, 1795638015535, '{"embedded/3":1}', 1, 1, 0, 0, 0, 0, 0, 1795638015544);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 0, 'production:1117dde903cf3afb', 2, 1795638016377, '{"embedded/0":1}', 0, 0, 1, 0, 0, 1, 0, 1795638016380);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 1, 'production:19f4e885255cb56f', 2, 1795638016408, '{"embedded/1":2}', 0, 0, 0, 0, 0, 0, 0, 1795638016414);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 2, 'production:4cc5aedd11ff7b01', 2, 1795638016457, '{"embedded/2":1}', 0, 0, 1, 0, 0, 1, 0, 1795638016462);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 3, 'production:4a04fa35f2173d24', 2, 1795638016494, '{"embedded/3":1}', 0, 0, 0, 0, 0, 0, 0, 1795638016502);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 0, 'production:1117dde903cf3afb', 3, 1795638017371, '{"embedded/0":1}', 0, 0, 1, 0, 0, 1, 0, 1795638017381);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 1, 'production:19f4e885255cb56f', 3, 1795638017427, '{"embedded/1":2}', 0, 0, 0, 0, 0, 0, 0, 1795638017430);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 2, 'production:4cc5aedd11ff7b01', 3, 1795638017476, '{"embedded/2":1}', 0, 0, 1, 0, 0, 1, 0, 1795638017490);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 3, 'production:4a04fa35f2173d24', 3, 1795638017516, '{"embedded/3":1}', 0, 0, 0, 0, 0, 0, 0, 1795638017521);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 0, 'production:1117dde903cf3afb', 4, 1795638018386, '{"embedded/0":1}', 0, 0, 1, 0, 1, 0, 0, 1795638018390);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 1, 'production:19f4e885255cb56f', 4, 1795638018476, '{"embedded/1":2}', 0, 0, 0, 0, 0, 0, 0, 1795638018480);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 2, 'production:4cc5aedd11ff7b01', 4, 1795638018529, '{"embedded/2":1}', 0, 0, 1, 0, 1, 0, 0, 1795638018543);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 3, 'production:4a04fa35f2173d24', 4, 1795638018620, '{"embedded/3":1}', 0, 0, 0, 0, 0, 0, 0, 1795638018637);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 0, 'production:1117dde903cf3afb', 5, 1795638019481, '{"embedded/0":1}', 0, 0, 0, 0, 0, 0, 0, 1795638019485);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 1, 'production:19f4e885255cb56f', 5, 1795638019528, '{"embedded/1":2}', 0, 0, 0, 0, 0, 0, 0, 1795638019535);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 2, 'production:4cc5aedd11ff7b01', 5, 1795638019577, '{"embedded/2":1}', 0, 0, 0, 0, 0, 0, 0, 1795638019581);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 3, 'production:4a04fa35f2173d24', 5, 1795638019617, '{"embedded/3":1}', 0, 0, 0, 0, 0, 0, 0, 1795638019629);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 0, 'production:1117dde903cf3afb', 6, 1795638020519, '{"embedded/0":1}', 0, 0, 0, 0, 0, 0, 0, 1795638020526);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 1, 'production:19f4e885255cb56f', 6, 1795638020596, '{"embedded/1":2}', 0, 0, 0, 0, 0, 0, 0, 1795638020605);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 2, 'production:4cc5aedd11ff7b01', 6, 1795638020652, '{"embedded/2":1}', 0, 0, 0, 0, 0, 0, 0, 1795638020657);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 3, 'production:4a04fa35f2173d24', 6, 1795638020697, '{"embedded/3":1}', 0, 0, 0, 0, 0, 0, 0, 1795638020710);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 0, 'production:1117dde903cf3afb', 7, 1795638021604, '{"embedded/0":1}', 0, 0, 0, 0, 0, 0, 0, 1795638021605);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 1, 'production:19f4e885255cb56f', 7, 1795638021650, '{"embedded/1":2}', 0, 0, 0, 0, 0, 0, 0, 1795638021656);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 2, 'production:4cc5aedd11ff7b01', 7, 1795638021704, '{"embedded/2":1}', 0, 0, 0, 0, 0, 0, 0, 1795638021709);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 3, 'production:4a04fa35f2173d24', 7, 1795638021756, '{"embedded/3":1}', 0, 0, 0, 0, 0, 0, 0, 1795638021760);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 0, 'production:1117dde903cf3afb', 8, 1795638022643, '{"embedded/0":1}', 0, 0, 0, 0, 0, 0, 0, 1795638022648);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 1, 'production:19f4e885255cb56f', 8, 1795638022684, '{"embedded/1":2}', 0, 0, 0, 0, 0, 0, 0, 1795638022688);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 2, 'production:4cc5aedd11ff7b01', 8, 1795638022712, '{"embedded/2":1}', 0, 0, 0, 0, 0, 0, 0, 1795638022717);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 3, 'production:4a04fa35f2173d24', 8, 1795638022752, '{"embedded/3":1}', 0, 0, 0, 0, 0, 0, 0, 1795638022758);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 0, 'production:1117dde903cf3afb', 9, 1795638023652, '{"embedded/0":1}', 0, 0, 0, 0, 0, 0, 0, 1795638023656);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 1, 'production:19f4e885255cb56f', 9, 1795638023703, '{"embedded/1":2}', 0, 0, 0, 0, 0, 0, 0, 1795638023712);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 2, 'production:4cc5aedd11ff7b01', 9, 1795638023740, '{"embedded/2":1}', 0, 0, 0, 0, 0, 0, 0, 1795638023745);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 3, 'production:4a04fa35f2173d24', 9, 1795638023789, '{"embedded/3":1}', 0, 0, 0, 0, 0, 0, 0, 1795638023793);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 0, 'production:1117dde903cf3afb', 10, 1795638024717, '{"embedded/0":2}', 0, 0, 0, 0, 0, 0, 0, 1795638024723);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 1, 'production:19f4e885255cb56f', 10, 1795638024764, '{"embedded/1":3}', 1, 0, 0, 1, 0, 1, 0, 1795638024774);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 2, 'production:4cc5aedd11ff7b01', 10, 1795638024813, '{"embedded/2":1}', 0, 0, 0, 0, 0, 0, 0, 1795638024816);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 3, 'production:4a04fa35f2173d24', 10, 1795638024845, '{"embedded/3":1}', 0, 0, 0, 0, 0, 0, 0, 1795638024854);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 0, 'production:1117dde903cf3afb', 11, 1795638025816, '{"embedded/0":2}', 0, 0, 0, 0, 0, 0, 0, 1795638025822);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 1, 'production:19f4e885255cb56f', 11, 1795638025868, '{"embedded/1":3}', 0, 0, 1, 0, 0, 1, 0, 1795638025871);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 2, 'production:4cc5aedd11ff7b01', 11, 1795638025894, '{"embedded/2":1}', 0, 0, 0, 0, 0, 0, 0, 1795638025899);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 3, 'production:4a04fa35f2173d24', 11, 1795638025935, '{"embedded/3":1}', 0, 0, 0, 0, 0, 0, 0, 1795638025941);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 0, 'production:1117dde903cf3afb', 12, 1795638026855, '{"embedded/0":2}', 0, 0, 0, 0, 0, 0, 0, 1795638026858);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 1, 'production:19f4e885255cb56f', 12, 1795638026916, '{"embedded/1":3}', 0, 0, 1, 0, 0, 1, 0, 1795638026926);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 2, 'production:4cc5aedd11ff7b01', 12, 1795638026968, '{"embedded/2":1}', 0, 0, 0, 0, 0, 0, 0, 1795638026971);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 3, 'production:4a04fa35f2173d24', 12, 1795638026997, '{"embedded/3":1}', 0, 0, 0, 0, 0, 0, 0, 1795638027005);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 0, 'production:1117dde903cf3afb', 13, 1795638027883, '{"embedded/0":2}', 0, 0, 0, 0, 0, 0, 0, 1795638027890);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 1, 'production:19f4e885255cb56f', 13, 1795638027955, '{"embedded/1":5}', 2, 0, 0, 2, 0, 2, 0, 1795638027968);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 2, 'production:4cc5aedd11ff7b01', 13, 1795638028020, '{"embedded/2":1}', 0, 0, 0, 0, 0, 0, 0, 1795638028024);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 3, 'production:4a04fa35f2173d24', 13, 1795638028061, '{"embedded/3":3}', 2, 0, 0, 2, 0, 2, 0, 1795638028068);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 0, 'production:1117dde903cf3afb', 14, 1795638028944, '{"embedded/0":2}', 0, 0, 0, 0, 0, 0, 0, 1795638028950);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 1, 'production:19f4e885255cb56f', 14, 1795638028985, '{"embedded/1":5}', 0, 0, 2, 0, 0, 2, 0, 1795638028993);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 2, 'production:4cc5aedd11ff7b01', 14, 1795638029032, '{"embedded/2":1}', 0, 0, 0, 0, 0, 0, 0, 1795638029037);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 3, 'production:4a04fa35f2173d24', 14, 1795638029061, '{"embedded/3":3}', 0, 0, 2, 0, 0, 2, 0, 1795638029062);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 0, 'production:1117dde903cf3afb', 15, 1795638030032, '{"embedded/0":2}', 0, 0, 0, 0, 0, 0, 0, 1795638030040);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 1, 'production:19f4e885255cb56f', 15, 1795638030066, '{"embedded/1":5}', 0, 0, 2, 0, 0, 2, 0, 1795638030073);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 2, 'production:4cc5aedd11ff7b01', 15, 1795638030100, '{"embedded/2":1}', 0, 0, 0, 0, 0, 0, 0, 1795638030105);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 3, 'production:4a04fa35f2173d24', 15, 1795638030144, '{"embedded/3":3}', 0, 0, 2, 0, 0, 2, 0, 1795638030149);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 0, 'production:1117dde903cf3afb', 16, 1795638031067, '{"embedded/0":2}', 0, 0, 0, 0, 0, 0, 0, 1795638031076);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 1, 'production:19f4e885255cb56f', 16, 1795638031135, '{"embedded/1":5}', 0, 0, 2, 0, 0, 2, 0, 1795638031141);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 2, 'production:4cc5aedd11ff7b01', 16, 1795638031188, '{"embedded/2":1}', 0, 0, 0, 0, 0, 0, 0, 1795638031193);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 3, 'production:4a04fa35f2173d24', 16, 1795638031251, '{"embedded/3":3}', 0, 0, 2, 0, 0, 2, 0, 1795638031256);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 0, 'production:1117dde903cf3afb', 17, 1795638032081, '{"embedded/0":2}', 0, 0, 0, 0, 0, 0, 0, 1795638032089);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 1, 'production:19f4e885255cb56f', 17, 1795638032136, '{"embedded/1":5}', 0, 0, 2, 0, 0, 2, 0, 1795638032144);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 2, 'production:4cc5aedd11ff7b01', 17, 1795638032170, '{"embedded/2":1}', 0, 0, 0, 0, 0, 0, 0, 1795638032174);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 3, 'production:4a04fa35f2173d24', 17, 1795638032224, '{"embedded/3":3}', 0, 0, 2, 0, 0, 2, 0, 1795638032229);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 0, 'production:1117dde903cf3afb', 18, 1795638033150, '{"embedded/0":2}', 0, 0, 0, 0, 0, 0, 0, 1795638033154);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 1, 'production:19f4e885255cb56f', 18, 1795638033186, '{"embedded/1":5}', 0, 0, 2, 0, 0, 2, 0, 1795638033193);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 2, 'production:4cc5aedd11ff7b01', 18, 1795638033221, '{"embedded/2":1}', 0, 0, 0, 0, 0, 0, 0, 1795638033224);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 3, 'production:4a04fa35f2173d24', 18, 1795638033260, '{"embedded/3":3}', 0, 0, 2, 0, 0, 2, 0, 1795638033265);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 0, 'production:1117dde903cf3afb', 19, 1795638034276, '{"embedded/0":2}', 0, 0, 0, 0, 0, 0, 0, 1795638034289);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 1, 'production:19f4e885255cb56f', 19, 1795638034357, '{"embedded/1":5}', 0, 0, 2, 0, 0, 2, 0, 1795638034365);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 2, 'production:4cc5aedd11ff7b01', 19, 1795638034437, '{"embedded/2":1}', 0, 0, 0, 0, 0, 0, 0, 1795638034445);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 3, 'production:4a04fa35f2173d24', 19, 1795638034498, '{"embedded/3":3}', 0, 0, 2, 0, 0, 2, 0, 1795638034500);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 0, 'production:1117dde903cf3afb', 20, 1795638035270, '{"embedded/0":2}', 0, 0, 0, 0, 0, 0, 0, 1795638035282);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 1, 'production:19f4e885255cb56f', 20, 1795638035312, '{"embedded/1":6}', 1, 0, 2, 1, 0, 3, 0, 1795638035316);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 2, 'production:4cc5aedd11ff7b01', 20, 1795638035364, '{"embedded/2":2}', 1, 0, 0, 1, 0, 1, 0, 1795638035370);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 3, 'production:4a04fa35f2173d24', 20, 1795638035416, '{"embedded/3":4}', 1, 0, 2, 1, 0, 3, 0, 1795638035425);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 0, 'production:1117dde903cf3afb', 21, 1795638036363, '{"embedded/0":2}', 0, 0, 0, 0, 0, 0, 0, 1795638036370);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 1, 'production:19f4e885255cb56f', 21, 1795638036412, '{"embedded/1":6}', 0, 0, 3, 0, 0, 3, 0, 1795638036421);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 2, 'production:4cc5aedd11ff7b01', 21, 1795638036468, '{"embedded/2":2}', 0, 0, 1, 0, 0, 1, 0, 1795638036477);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 3, 'production:4a04fa35f2173d24', 21, 1795638036507, '{"embedded/3":4}', 0, 0, 3, 0, 0, 3, 0, 1795638036513);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 0, 'production:1117dde903cf3afb', 22, 1795638037409, '{"embedded/0":2}', 0, 0, 0, 0, 0, 0, 0, 1795638037413);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 1, 'production:19f4e885255cb56f', 22, 1795638037452, '{"embedded/1":6}', 0, 0, 3, 0, 0, 3, 0, 1795638037456);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 2, 'production:4cc5aedd11ff7b01', 22, 1795638037485, '{"embedded/2":2}', 0, 0, 1, 0, 0, 1, 0, 1795638037496);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 3, 'production:4a04fa35f2173d24', 22, 1795638037535, '{"embedded/3":4}', 0, 0, 3, 0, 0, 3, 0, 1795638037544);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 0, 'production:1117dde903cf3afb', 23, 1795638038486, '{"embedded/0":2}', 0, 0, 0, 0, 0, 0, 0, 1795638038490);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 1, 'production:19f4e885255cb56f', 23, 1795638038537, '{"embedded/1":6}', 0, 0, 3, 0, 0, 3, 0, 1795638038546);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 2, 'production:4cc5aedd11ff7b01', 23, 1795638038589, '{"embedded/2":2}', 0, 0, 1, 0, 0, 1, 0, 1795638038599);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 3, 'production:4a04fa35f2173d24', 23, 1795638038637, '{"embedded/3":4}', 0, 0, 3, 0, 0, 3, 0, 1795638038646);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 0, 'production:1117dde903cf3afb', 24, 1795638039536, '{"embedded/0":2}', 0, 0, 0, 0, 0, 0, 0, 1795638039544);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 1, 'production:19f4e885255cb56f', 24, 1795638039621, '{"embedded/1":6}', 0, 0, 2, 0, 0, 2, 0, 1795638039631);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 2, 'production:4cc5aedd11ff7b01', 24, 1795638039697, '{"embedded/2":2}', 0, 0, 1, 0, 0, 1, 0, 1795638039726);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 3, 'production:4a04fa35f2173d24', 24, 1795638039757, '{"embedded/3":4}', 0, 0, 3, 0, 0, 3, 0, 1795638039761);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 0, 'production:1117dde903cf3afb', 25, 1795638047913, '{"embedded/0":2}', 0, 0, 0, 0, 0, 0, 0, 1795638047926);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 1, 'production:19f4e885255cb56f', 25, 1795638047997, '{"embedded/1":6}', 0, 0, 2, 0, 0, 2, 0, 1795638048005);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 2, 'production:4cc5aedd11ff7b01', 25, 1795638048057, '{"embedded/2":2}', 0, 0, 1, 0, 0, 1, 0, 1795638048071);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 3, 'production:4a04fa35f2173d24', 25, 1795638048110, '{"embedded/3":4}', 0, 0, 3, 0, 0, 3, 0, 1795638048134);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 0, 'production:1117dde903cf3afb', 26, 1795638048993, '{"embedded/0":2}', 0, 0, 0, 0, 0, 0, 0, 1795638049003);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 1, 'production:19f4e885255cb56f', 26, 1795638049055, '{"embedded/1":6}', 0, 0, 2, 0, 0, 2, 0, 1795638049060);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 2, 'production:4cc5aedd11ff7b01', 26, 1795638049104, '{"embedded/2":2}', 0, 0, 1, 0, 0, 1, 0, 1795638049108);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 3, 'production:4a04fa35f2173d24', 26, 1795638049155, '{"embedded/3":4}', 0, 0, 3, 0, 0, 3, 0, 1795638049160);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 0, 'production:1117dde903cf3afb', 27, 1795638050040, '{"embedded/0":2}', 0, 0, 0, 0, 0, 0, 0, 1795638050052);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 1, 'production:19f4e885255cb56f', 27, 1795638050118, '{"embedded/1":6}', 0, 0, 2, 0, 0, 2, 0, 1795638050138);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 2, 'production:4cc5aedd11ff7b01', 27, 1795638050192, '{"embedded/2":2}', 0, 0, 1, 0, 0, 1, 0, 1795638050206);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 3, 'production:4a04fa35f2173d24', 27, 1795638050251, '{"embedded/3":4}', 0, 0, 3, 0, 0, 3, 0, 1795638050253);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 0, 'production:1117dde903cf3afb', 28, 1795638051074, '{"embedded/0":2}', 0, 0, 0, 0, 0, 0, 0, 1795638051086);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 1, 'production:19f4e885255cb56f', 28, 1795638051145, '{"embedded/1":6}', 0, 0, 2, 0, 0, 2, 0, 1795638051150);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 2, 'production:4cc5aedd11ff7b01', 28, 1795638051191, '{"embedded/2":2}', 0, 0, 1, 0, 0, 1, 0, 1795638051207);
INSERT INTO reconciler_round ("environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "offsets", "announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after", "void", "stored_at_ms") VALUES ('production', 'ORDERS', 'billing', 3, 'production:4a04fa35f2173d24', 28, 1795638051288, '{"embedded/3":4}', 0, 0, 3, 0, 0, 3, 0, 1795638051297);

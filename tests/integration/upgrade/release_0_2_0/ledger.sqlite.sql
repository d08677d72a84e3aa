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

CREATE TABLE reconciler_hold (
    environment VARCHAR(160) NOT NULL, 
    topic VARCHAR(160) NOT NULL, 
    kind VARCHAR(32) NOT NULL, 
    since_ms BIGINT NOT NULL, 
    "by" VARCHAR(160) NOT NULL, 
    reason TEXT NOT NULL, 
    PRIMARY KEY (environment, topic, kind)
);

CREATE TABLE reconciler_quarantine (
    environment VARCHAR(160) NOT NULL, 
    unique_key_topic VARCHAR(160) NOT NULL, 
    broker VARCHAR(160) NOT NULL, 
    queue_id INTEGER NOT NULL, 
    queue_offset BIGINT NOT NULL, 
    reason VARCHAR(32) NOT NULL, 
    detail TEXT NOT NULL, 
    body BLOB NOT NULL, 
    seen_at_ms BIGINT NOT NULL, 
    PRIMARY KEY (environment, unique_key_topic, broker, queue_id, queue_offset)
);

INSERT INTO reconciler_alembic_version_ledger (version_num) VALUES ('0001_ledger') RETURNING version_num;

-- Running upgrade 0001_ledger -> 0002_first_send

ALTER TABLE reconciler_repair ADD COLUMN first_sent_at_ms BIGINT;

UPDATE reconciler_alembic_version_ledger SET version_num='0002_first_send' WHERE reconciler_alembic_version_ledger.version_num = '0001_ledger';

-- Running upgrade 0002_first_send -> 0003_broker

CREATE TABLE reconciler_broker (
    environment VARCHAR(160) NOT NULL, 
    topic VARCHAR(160) NOT NULL, 
    broker VARCHAR(160) NOT NULL, 
    gone_since_ms BIGINT, 
    PRIMARY KEY (environment, topic, broker)
);

UPDATE reconciler_alembic_version_ledger SET version_num='0003_broker' WHERE reconciler_alembic_version_ledger.version_num = '0002_first_send';

-- Running upgrade 0003_broker -> 0004_operator_action

CREATE TABLE reconciler_operator_action (
    action_id VARCHAR(64) NOT NULL, 
    environment VARCHAR(160) NOT NULL, 
    "by" VARCHAR(160) NOT NULL, 
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

CREATE INDEX ix_reconciler_operator_action_environment_started ON reconciler_operator_action (environment, started_at_ms);

CREATE INDEX ix_reconciler_operator_action_unique ON reconciler_operator_action (unique_key);

UPDATE reconciler_alembic_version_ledger SET version_num='0004_operator_action' WHERE reconciler_alembic_version_ledger.version_num = '0003_broker';

-- Running upgrade 0004_operator_action -> 0005_ask_again

ALTER TABLE reconciler_candidate ADD COLUMN ask_again_at_ms BIGINT;

CREATE INDEX ix_reconciler_candidate_environment_topic_consumer_ask ON reconciler_candidate (environment, topic, consumer_group, ask_again_at_ms) WHERE ask_again_at_ms IS NOT NULL;

UPDATE reconciler_alembic_version_ledger SET version_num='0005_ask_again' WHERE reconciler_alembic_version_ledger.version_num = '0004_operator_action';

-- Running upgrade 0005_ask_again -> 0006_job

CREATE TABLE reconciler_job (
    job_id VARCHAR(64) NOT NULL, 
    environment VARCHAR(160) NOT NULL, 
    kind VARCHAR(32) NOT NULL, 
    request TEXT NOT NULL, 
    "by" VARCHAR(160) NOT NULL, 
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

CREATE INDEX ix_reconciler_job_environment_created ON reconciler_job (environment, created_at_ms);

CREATE INDEX ix_reconciler_job_environment_state_created ON reconciler_job (environment, state, created_at_ms);

CREATE TABLE reconciler_idempotency_key (
    environment VARCHAR(160) NOT NULL, 
    "by" VARCHAR(160) NOT NULL, 
    idempotency_key VARCHAR(160) NOT NULL, 
    digest BLOB NOT NULL, 
    state VARCHAR(32) NOT NULL, 
    token VARCHAR(160), 
    lease_until_ms BIGINT, 
    status INTEGER, 
    answer TEXT, 
    created_at_ms BIGINT NOT NULL, 
    PRIMARY KEY (environment, "by", idempotency_key)
);

CREATE INDEX ix_reconciler_idempotency_key_environment_created ON reconciler_idempotency_key (environment, created_at_ms);

UPDATE reconciler_alembic_version_ledger SET version_num='0006_job' WHERE reconciler_alembic_version_ledger.version_num = '0005_ask_again';

-- Running upgrade 0006_job -> 0007_environment

CREATE TABLE reconciler_environment (
    environment VARCHAR(160) NOT NULL, 
    brokers TEXT NOT NULL, 
    "by" VARCHAR(160) NOT NULL, 
    renewed_at_ms BIGINT NOT NULL, 
    PRIMARY KEY (environment)
);

UPDATE reconciler_alembic_version_ledger SET version_num='0007_environment' WHERE reconciler_alembic_version_ledger.version_num = '0006_job';

-- Running upgrade 0007_environment -> 0008_pages

CREATE INDEX ix_reconciler_candidate_page_first ON reconciler_candidate (environment, first_seen_ms, topic, consumer_group, unique_key);

CREATE INDEX ix_reconciler_candidate_page_state_first ON reconciler_candidate (environment, state, first_seen_ms, topic, consumer_group, unique_key);

CREATE INDEX ix_reconciler_repair_page_created ON reconciler_repair (environment, created_at_ms, topic, scope, unique_key);

CREATE INDEX ix_reconciler_repair_page_state_created ON reconciler_repair (environment, state, created_at_ms, topic, scope, unique_key);

CREATE INDEX ix_reconciler_quarantine_page_seen ON reconciler_quarantine (environment, seen_at_ms, unique_key_topic, broker, queue_id, queue_offset);

CREATE INDEX ix_reconciler_candidate_page_loss_first ON reconciler_candidate (environment, first_seen_ms, topic, consumer_group, unique_key) WHERE loss_verdict IS NOT NULL;

UPDATE reconciler_alembic_version_ledger SET version_num='0008_pages' WHERE reconciler_alembic_version_ledger.version_num = '0007_environment';

-- Running upgrade 0008_pages -> 0009_counts

CREATE INDEX ix_reconciler_candidate_count ON reconciler_candidate (environment, topic, consumer_group, state, verdict, loss_verdict, first_seen_ms);

CREATE INDEX ix_reconciler_repair_count ON reconciler_repair (environment, topic, scope, state, rung, attempts);

UPDATE reconciler_alembic_version_ledger SET version_num='0009_counts' WHERE reconciler_alembic_version_ledger.version_num = '0008_pages';

-- Running upgrade 0009_counts -> 0010_verified_repairs

CREATE INDEX ix_reconciler_repair_environment_done ON reconciler_repair (environment, done_at_ms) WHERE done_at_ms IS NOT NULL;

UPDATE reconciler_alembic_version_ledger SET version_num='0010_verified_repairs' WHERE reconciler_alembic_version_ledger.version_num = '0009_counts';

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

ALTER TABLE reconciler_candidate ADD COLUMN loss_at_ms BIGINT;

CREATE INDEX ix_reconciler_candidate_environment_topic_consumer_loss ON reconciler_candidate (environment, topic, consumer_group, loss_at_ms) WHERE loss_at_ms IS NOT NULL;

UPDATE reconciler_alembic_version_ledger SET version_num='0011_notice' WHERE reconciler_alembic_version_ledger.version_num = '0010_verified_repairs';


CREATE TABLE reconciler_alembic_version_outbox (
    version_num VARCHAR(32) NOT NULL, 
    CONSTRAINT reconciler_alembic_version_outbox_pkc PRIMARY KEY (version_num)
);

-- Running upgrade  -> 0001_outbox

CREATE TABLE reconciler_outbox (
    unique_key VARCHAR(64) NOT NULL, 
    topic VARCHAR(160) NOT NULL, 
    producer_group VARCHAR(160) NOT NULL, 
    tag VARCHAR(160), 
    message_keys TEXT, 
    business_id VARCHAR(160), 
    half_broker VARCHAR(160), 
    half_commit_log_offset BIGINT, 
    half_queue_offset BIGINT, 
    properties TEXT, 
    body BLOB, 
    content_digest BLOB, 
    state VARCHAR(32) NOT NULL, 
    created_at_ms BIGINT NOT NULL, 
    announced_at_ms BIGINT, 
    settled_at_ms BIGINT, 
    PRIMARY KEY (unique_key)
);

CREATE INDEX ix_reconciler_outbox_state_created ON reconciler_outbox (state, created_at_ms);

CREATE INDEX ix_reconciler_outbox_state_announced ON reconciler_outbox (state, announced_at_ms);

CREATE INDEX ix_reconciler_outbox_created ON reconciler_outbox (created_at_ms);

CREATE TABLE reconciler_outbox_identity (
    id INTEGER NOT NULL, 
    identity VARCHAR(160) NOT NULL, 
    PRIMARY KEY (id)
);

INSERT INTO reconciler_outbox_identity (id, identity) SELECT 1, lower(hex(randomblob(16))) WHERE NOT EXISTS (SELECT 1 FROM reconciler_outbox_identity WHERE id = 1);

INSERT INTO reconciler_alembic_version_outbox (version_num) VALUES ('0001_outbox') RETURNING version_num;

-- Running upgrade 0001_outbox -> 0002_sign_of_life

ALTER TABLE reconciler_outbox_identity ADD COLUMN swept_at_ms BIGINT;

INSERT INTO reconciler_outbox_identity (id, identity) SELECT 2, 'sign of life' WHERE NOT EXISTS (SELECT 1 FROM reconciler_outbox_identity WHERE id = 2);

UPDATE reconciler_alembic_version_outbox SET version_num='0002_sign_of_life' WHERE reconciler_alembic_version_outbox.version_num = '0001_outbox';

-- Running upgrade 0002_sign_of_life -> 0003_filter

CREATE TABLE reconciler_outbox_filter (
    producer_group VARCHAR(160) NOT NULL, 
    topic VARCHAR(160) NOT NULL, 
    consumer_group VARCHAR(160) NOT NULL, 
    tags TEXT NOT NULL, 
    version INTEGER NOT NULL, 
    PRIMARY KEY (producer_group, topic, consumer_group)
);

UPDATE reconciler_alembic_version_outbox SET version_num='0003_filter' WHERE reconciler_alembic_version_outbox.version_num = '0002_sign_of_life';

-- Running upgrade 0003_filter -> 0004_business_id

CREATE INDEX ix_reconciler_outbox_business_created ON reconciler_outbox (business_id, created_at_ms);

UPDATE reconciler_alembic_version_outbox SET version_num='0004_business_id' WHERE reconciler_alembic_version_outbox.version_num = '0003_filter';


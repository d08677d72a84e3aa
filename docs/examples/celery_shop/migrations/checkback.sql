CREATE TABLE reconciler_alembic_version_outbox (
    version_num VARCHAR(32) NOT NULL, 
    CONSTRAINT reconciler_alembic_version_outbox_pkc PRIMARY KEY (version_num)
);

-- Running upgrade  -> 0004_business_id

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
    body BYTEA, 
    content_digest BYTEA, 
    state VARCHAR(32) NOT NULL, 
    created_at_ms BIGINT NOT NULL, 
    announced_at_ms BIGINT, 
    settled_at_ms BIGINT, 
    PRIMARY KEY (unique_key)
);

COMMENT ON TABLE reconciler_outbox IS 'One row a transactional message, written in the local transaction: the only evidence of the commit.';

COMMENT ON COLUMN reconciler_outbox.unique_key IS 'UNIQ_KEY, made before the half is sent.';

COMMENT ON COLUMN reconciler_outbox.topic IS 'Business topic.';

COMMENT ON COLUMN reconciler_outbox.producer_group IS 'PGROUP of the half.';

COMMENT ON COLUMN reconciler_outbox.tag IS 'Tag, or NULL.';

COMMENT ON COLUMN reconciler_outbox.message_keys IS 'KEYS as sent, without the unique key, or NULL.';

COMMENT ON COLUMN reconciler_outbox.business_id IS 'The business transaction''s own id, also property BUSINESS_ID.';

COMMENT ON COLUMN reconciler_outbox.half_broker IS 'Broker of the half; NULL where the client does not report it.';

COMMENT ON COLUMN reconciler_outbox.half_commit_log_offset IS 'Commit-log offset of the first half copy.';

COMMENT ON COLUMN reconciler_outbox.half_queue_offset IS 'Queue offset of the first half copy.';

COMMENT ON COLUMN reconciler_outbox.properties IS 'User properties, if the body is kept.';

COMMENT ON COLUMN reconciler_outbox.body IS 'Uncompressed body, if the producer keeps bodies.';

COMMENT ON COLUMN reconciler_outbox.content_digest IS 'contract/content_digest.py; NULL: not checked.';

COMMENT ON COLUMN reconciler_outbox.state IS 'NEW, ANNOUNCED, SETTLED or ROLLED_BACK (a tombstone).';

COMMENT ON COLUMN reconciler_outbox.created_at_ms IS 'When the row was written.';

COMMENT ON COLUMN reconciler_outbox.announced_at_ms IS 'Last announcement.';

COMMENT ON COLUMN reconciler_outbox.settled_at_ms IS 'When every inbox had the key.';

CREATE INDEX ix_reconciler_outbox_state_created ON reconciler_outbox (state, created_at_ms);

CREATE INDEX ix_reconciler_outbox_state_announced ON reconciler_outbox (state, announced_at_ms);

CREATE INDEX ix_reconciler_outbox_created ON reconciler_outbox (created_at_ms);

CREATE INDEX ix_reconciler_outbox_business_created ON reconciler_outbox (business_id, created_at_ms);

CREATE TABLE reconciler_outbox_identity (
    id INTEGER NOT NULL, 
    identity VARCHAR(160) NOT NULL, 
    swept_at_ms BIGINT, 
    PRIMARY KEY (id)
);

COMMENT ON TABLE reconciler_outbox_identity IS 'Identity of this database, so that record() notices a connection to another one; and its sign of life.';

COMMENT ON COLUMN reconciler_outbox_identity.id IS '1: the identity. 2: the sign of life, in a row of its own that no record() locks.';

COMMENT ON COLUMN reconciler_outbox_identity.identity IS 'Random text, made by the migration.';

COMMENT ON COLUMN reconciler_outbox_identity.swept_at_ms IS 'Row 2: time of the last sweep; NULL before the first one.';

CREATE TABLE reconciler_outbox_filter (
    producer_group VARCHAR(160) NOT NULL, 
    topic VARCHAR(160) NOT NULL, 
    consumer_group VARCHAR(160) NOT NULL, 
    tags TEXT NOT NULL, 
    version INTEGER NOT NULL, 
    PRIMARY KEY (producer_group, topic, consumer_group)
);

COMMENT ON TABLE reconciler_outbox_filter IS 'Tags whose rows were settled only after the group''s effect: for its other tags SETTLED proves no effect.';

COMMENT ON COLUMN reconciler_outbox_filter.producer_group IS 'Producer group of the rows.';

COMMENT ON COLUMN reconciler_outbox_filter.topic IS 'Business topic.';

COMMENT ON COLUMN reconciler_outbox_filter.consumer_group IS 'The group.';

COMMENT ON COLUMN reconciler_outbox_filter.tags IS 'Sorted list, or "*" for every message.';

COMMENT ON COLUMN reconciler_outbox_filter.version IS 'Grows with every change: a sweeper replaces only the version that it has read.';

INSERT INTO reconciler_outbox_identity (id, identity) SELECT 1, md5(random()::text || clock_timestamp()::text || pg_backend_pid()::text) WHERE NOT EXISTS (SELECT 1 FROM reconciler_outbox_identity WHERE id = 1);

INSERT INTO reconciler_outbox_identity (id, identity) SELECT 2, 'sign of life' WHERE NOT EXISTS (SELECT 1 FROM reconciler_outbox_identity WHERE id = 2);

INSERT INTO reconciler_alembic_version_outbox (version_num) VALUES ('0004_business_id') RETURNING reconciler_alembic_version_outbox.version_num;

CREATE TABLE reconciler_alembic_version_inbox (
    version_num VARCHAR(32) NOT NULL, 
    CONSTRAINT reconciler_alembic_version_inbox_pkc PRIMARY KEY (version_num)
);

-- Running upgrade  -> 0001_inbox

CREATE TABLE reconciler_inbox (
    consumer_group VARCHAR(160) NOT NULL, 
    unique_key VARCHAR(64) NOT NULL, 
    topic VARCHAR(160) NOT NULL, 
    dedupe_key VARCHAR(160), 
    duplicate_of VARCHAR(64), 
    content_digest BYTEA, 
    source VARCHAR(32) NOT NULL, 
    applied_at_ms BIGINT NOT NULL, 
    PRIMARY KEY (consumer_group, unique_key)
);

COMMENT ON TABLE reconciler_inbox IS 'One row an effect, written in the transaction of the effect: the evidence of the consumption.';

COMMENT ON COLUMN reconciler_inbox.consumer_group IS 'The group.';

COMMENT ON COLUMN reconciler_inbox.unique_key IS 'UNIQ_KEY.';

COMMENT ON COLUMN reconciler_inbox.topic IS 'Business topic.';

COMMENT ON COLUMN reconciler_inbox.dedupe_key IS 'Business id, where the handler dedupes by it.';

COMMENT ON COLUMN reconciler_inbox.duplicate_of IS 'Unique key with the same dedupe_key that has the effect.';

COMMENT ON COLUMN reconciler_inbox.content_digest IS 'Of the message as consumed; NULL: not checked.';

COMMENT ON COLUMN reconciler_inbox.source IS 'consumer, or hand-over.';

COMMENT ON COLUMN reconciler_inbox.applied_at_ms IS 'When the row was written.';

CREATE INDEX ix_reconciler_inbox_consumer_applied ON reconciler_inbox (consumer_group, applied_at_ms);

CREATE UNIQUE INDEX uq_reconciler_inbox_consumer_dedupe ON reconciler_inbox (consumer_group, dedupe_key);

INSERT INTO reconciler_alembic_version_inbox (version_num) VALUES ('0001_inbox') RETURNING reconciler_alembic_version_inbox.version_num;

-- Running upgrade 0001_inbox -> 0002_incomplete

ALTER TABLE reconciler_inbox ADD COLUMN incomplete VARCHAR(32);

COMMENT ON COLUMN reconciler_inbox.incomplete IS 'NULL: the effect is whole. Else the mark of the transaction whose handler has not returned.';

UPDATE reconciler_alembic_version_inbox SET version_num='0002_incomplete' WHERE reconciler_alembic_version_inbox.version_num = '0001_inbox';

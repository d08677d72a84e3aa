BEGIN;

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

COMMIT;


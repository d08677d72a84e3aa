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
    content_digest BLOB, 
    source VARCHAR(32) NOT NULL, 
    applied_at_ms BIGINT NOT NULL, 
    PRIMARY KEY (consumer_group, unique_key)
);

CREATE INDEX ix_reconciler_inbox_consumer_applied ON reconciler_inbox (consumer_group, applied_at_ms);

CREATE UNIQUE INDEX uq_reconciler_inbox_consumer_dedupe ON reconciler_inbox (consumer_group, dedupe_key);

INSERT INTO reconciler_alembic_version_inbox (version_num) VALUES ('0001_inbox') RETURNING version_num;


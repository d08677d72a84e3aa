CREATE TABLE reconciler_alembic_version_inbox (
    version_num VARCHAR(32) NOT NULL, 
    CONSTRAINT reconciler_alembic_version_inbox_pkc PRIMARY KEY (version_num)
);

-- Running upgrade  -> 0001_inbox

CREATE TABLE reconciler_inbox (
    consumer_group VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'The group.', 
    unique_key VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'UNIQ_KEY.', 
    topic VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'Business topic.', 
    dedupe_key VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin COMMENT 'Business id, where the handler dedupes by it.', 
    duplicate_of VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin COMMENT 'Unique key with the same dedupe_key that has the effect.', 
    content_digest VARBINARY(32) COMMENT 'Of the message as consumed; NULL: not checked.', 
    source VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'consumer, or hand-over.', 
    applied_at_ms BIGINT NOT NULL COMMENT 'When the row was written.', 
    PRIMARY KEY (consumer_group, unique_key)
)ENGINE=InnoDB CHARSET=utf8mb4 COMMENT='One row an effect, written in the transaction of the effect: the evidence of the consumption.';

CREATE INDEX ix_reconciler_inbox_consumer_applied ON reconciler_inbox (consumer_group, applied_at_ms);

CREATE UNIQUE INDEX uq_reconciler_inbox_consumer_dedupe ON reconciler_inbox (consumer_group, dedupe_key);

INSERT INTO reconciler_alembic_version_inbox (version_num) VALUES ('0001_inbox');


CREATE TABLE reconciler_alembic_version_outbox (
    version_num VARCHAR(32) NOT NULL, 
    CONSTRAINT reconciler_alembic_version_outbox_pkc PRIMARY KEY (version_num)
);

-- Running upgrade  -> 0001_outbox

CREATE TABLE reconciler_outbox (
    unique_key VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'UNIQ_KEY, made before the half is sent.', 
    topic VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'Business topic.', 
    producer_group VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'PGROUP of the half.', 
    tag VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin COMMENT 'Tag, or NULL.', 
    message_keys LONGTEXT CHARACTER SET utf8mb4 COMMENT 'KEYS as sent, without the unique key, or NULL.', 
    business_id VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin COMMENT 'The business transaction''s own id, also property BUSINESS_ID.', 
    half_broker VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin COMMENT 'Broker of the half; NULL where the client does not report it.', 
    half_commit_log_offset BIGINT COMMENT 'Commit-log offset of the first half copy.', 
    half_queue_offset BIGINT COMMENT 'Queue offset of the first half copy.', 
    properties LONGTEXT CHARACTER SET utf8mb4 COMMENT 'User properties, if the body is kept.', 
    body LONGBLOB COMMENT 'Uncompressed body, if the producer keeps bodies.', 
    content_digest VARBINARY(32) COMMENT 'contract/content_digest.py; NULL: not checked.', 
    state VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'NEW, ANNOUNCED, SETTLED or ROLLED_BACK (a tombstone).', 
    created_at_ms BIGINT NOT NULL COMMENT 'When the row was written.', 
    announced_at_ms BIGINT COMMENT 'Last announcement.', 
    settled_at_ms BIGINT COMMENT 'When every inbox had the key.', 
    PRIMARY KEY (unique_key)
)ENGINE=InnoDB CHARSET=utf8mb4 COMMENT='One row a transactional message, written in the local transaction: the only evidence of the commit.';

CREATE INDEX ix_reconciler_outbox_state_created ON reconciler_outbox (state, created_at_ms);

CREATE INDEX ix_reconciler_outbox_state_announced ON reconciler_outbox (state, announced_at_ms);

CREATE INDEX ix_reconciler_outbox_created ON reconciler_outbox (created_at_ms);

CREATE TABLE reconciler_outbox_identity (
    id INTEGER NOT NULL COMMENT 'Always 1.', 
    identity VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'Random text, made by the migration.', 
    PRIMARY KEY (id)
)ENGINE=InnoDB CHARSET=utf8mb4 COMMENT='Identity of this database, so that record() notices a connection to another one.';

INSERT INTO reconciler_outbox_identity (id, identity) SELECT 1, md5(concat(uuid(), rand())) FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM reconciler_outbox_identity WHERE id = 1);

INSERT INTO reconciler_alembic_version_outbox (version_num) VALUES ('0001_outbox');

-- Running upgrade 0001_outbox -> 0002_sign_of_life

ALTER TABLE reconciler_outbox_identity ADD COLUMN swept_at_ms BIGINT COMMENT 'Row 2: time of the last sweep; NULL before the first one.';

INSERT INTO reconciler_outbox_identity (id, identity) SELECT 2, 'sign of life' FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM reconciler_outbox_identity WHERE id = 2);

ALTER TABLE reconciler_outbox_identity MODIFY id INTEGER NOT NULL COMMENT '1: the identity. 2: the sign of life, in a row of its own that no record() locks.';

ALTER TABLE reconciler_outbox_identity COMMENT 'Identity of this database, so that record() notices a connection to another one; and its sign of life.';

UPDATE reconciler_alembic_version_outbox SET version_num='0002_sign_of_life' WHERE reconciler_alembic_version_outbox.version_num = '0001_outbox';

-- Running upgrade 0002_sign_of_life -> 0003_filter

CREATE TABLE reconciler_outbox_filter (
    producer_group VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'Producer group of the rows.', 
    topic VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'Business topic.', 
    consumer_group VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'The group.', 
    tags LONGTEXT CHARACTER SET utf8mb4 NOT NULL COMMENT 'Sorted list, or "*" for every message.', 
    version INTEGER NOT NULL COMMENT 'Grows with every change: a sweeper replaces only the version that it has read.', 
    PRIMARY KEY (producer_group, topic, consumer_group)
)ENGINE=InnoDB CHARSET=utf8mb4 COMMENT='Tags whose rows were settled only after the group''s effect: for its other tags SETTLED proves no effect.';

UPDATE reconciler_alembic_version_outbox SET version_num='0003_filter' WHERE reconciler_alembic_version_outbox.version_num = '0002_sign_of_life';

-- Running upgrade 0003_filter -> 0004_business_id

SET SESSION lock_wait_timeout = 2;

ALTER TABLE reconciler_outbox ADD INDEX ix_reconciler_outbox_business_created (business_id, created_at_ms), ALGORITHM=INPLACE, LOCK=NONE;

UPDATE reconciler_alembic_version_outbox SET version_num='0004_business_id' WHERE reconciler_alembic_version_outbox.version_num = '0003_filter';


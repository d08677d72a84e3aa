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

INSERT INTO reconciler_inbox ("consumer_group", "unique_key", "topic", "dedupe_key", "duplicate_of", "content_digest", "source", "applied_at_ms") VALUES ('billing', 'C000020262E4F73CAE9D7FF5A9389295', 'ORDERS', NULL, NULL, X'd84f6bf6347adcf8cc9a0a5592377907884e16ca8fa95921597517740ede0e3e', 'consumer', 1795638006216);
INSERT INTO reconciler_inbox ("consumer_group", "unique_key", "topic", "dedupe_key", "duplicate_of", "content_digest", "source", "applied_at_ms") VALUES ('billing', 'C000020262E4F73CAE9D7FF5A9399296', 'ORDERS', NULL, NULL, X'b4febc7d9626bc62924cfbcb5b2034379813417314aba28b3ed98a52449f3be8', 'consumer', 1795638006280);
INSERT INTO reconciler_inbox ("consumer_group", "unique_key", "topic", "dedupe_key", "duplicate_of", "content_digest", "source", "applied_at_ms") VALUES ('billing', 'C000020262E4F73CAE9D7FF5A9399297', 'ORDERS', NULL, NULL, X'58ff6add79921b92dd92029a4642935285e0a7a1812516540b9491679d9af618', 'consumer', 1795638006357);
INSERT INTO reconciler_inbox ("consumer_group", "unique_key", "topic", "dedupe_key", "duplicate_of", "content_digest", "source", "applied_at_ms") VALUES ('billing', 'C000020262E4F73CAE9D7FF5AAA99299', 'ORDERS', NULL, NULL, X'ede3f5758bca823fae99e9b134c297297e63e633e95ac721e8d88d2225fc9a9c', 'consumer', 1795638017795);
INSERT INTO reconciler_inbox ("consumer_group", "unique_key", "topic", "dedupe_key", "duplicate_of", "content_digest", "source", "applied_at_ms") VALUES ('billing', 'C000020262E4F73CAE9D7FF5AAA99298', 'ORDERS', NULL, NULL, X'7c98fe7a65995542ab065923ad8d926905651f1474254335aa2a45eb739932a4', 'consumer', 1795638017836);
INSERT INTO reconciler_inbox ("consumer_group", "unique_key", "topic", "dedupe_key", "duplicate_of", "content_digest", "source", "applied_at_ms") VALUES ('billing', 'C000020262E4F73CAE9D7FF685D992A5', 'ORDERS', NULL, NULL, X'c66fafbbd4e34a45a2b9c5dcc2cfb0abd216fb9a4b890142691326391e524cd6', 'consumer', 1795638062667);

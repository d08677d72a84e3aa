BEGIN;

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

COMMENT ON COLUMN reconciler_outbox.half_broker IS 'Broker that holds the half; NULL where the client does not tell.';

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

CREATE TABLE reconciler_outbox_identity (
    id INTEGER NOT NULL, 
    identity VARCHAR(160) NOT NULL, 
    PRIMARY KEY (id)
);

COMMENT ON TABLE reconciler_outbox_identity IS 'One row that names this database, so that record() notices a connection to another one.';

COMMENT ON COLUMN reconciler_outbox_identity.id IS 'Always 1.';

COMMENT ON COLUMN reconciler_outbox_identity.identity IS 'Random text, made by the migration.';

INSERT INTO reconciler_outbox_identity (id, identity) SELECT 1, md5(random()::text || clock_timestamp()::text || pg_backend_pid()::text) WHERE NOT EXISTS (SELECT 1 FROM reconciler_outbox_identity WHERE id = 1);

INSERT INTO reconciler_alembic_version_outbox (version_num) VALUES ('0001_outbox') RETURNING reconciler_alembic_version_outbox.version_num;

COMMIT;

INSERT INTO reconciler_outbox ("unique_key", "topic", "producer_group", "tag", "message_keys", "business_id", "half_broker", "half_commit_log_offset", "half_queue_offset", "properties", "body", "content_digest", "state", "created_at_ms", "announced_at_ms", "settled_at_ms") VALUES ('C000020262E4F73CAE9D7FF5A9389295', 'ORDERS', 'order-service', NULL, NULL, '01M8A5V49SH2J2B7ZKE3XXJVEM', 'embedded', 0, 0, NULL, NULL, '\xd84f6bf6347adcf8cc9a0a5592377907884e16ca8fa95921597517740ede0e3e', 'SETTLED', 1795638006078, 1795638006161, 1795638014805);
INSERT INTO reconciler_outbox ("unique_key", "topic", "producer_group", "tag", "message_keys", "business_id", "half_broker", "half_commit_log_offset", "half_queue_offset", "properties", "body", "content_digest", "state", "created_at_ms", "announced_at_ms", "settled_at_ms") VALUES ('C000020262E4F73CAE9D7FF5A9399296', 'ORDERS', 'order-service', NULL, NULL, '01M8A5V4D3703CJHFNRGSHPKH4', 'embedded', 1209, 1, NULL, NULL, '\xb4febc7d9626bc62924cfbcb5b2034379813417314aba28b3ed98a52449f3be8', 'SETTLED', 1795638006217, 1795638006292, 1795638014805);
INSERT INTO reconciler_outbox ("unique_key", "topic", "producer_group", "tag", "message_keys", "business_id", "half_broker", "half_commit_log_offset", "half_queue_offset", "properties", "body", "content_digest", "state", "created_at_ms", "announced_at_ms", "settled_at_ms") VALUES ('C000020262E4F73CAE9D7FF5A9399297', 'ORDERS', 'order-service', NULL, NULL, '01M8A5V4H4BNYXR2VVVSNC4B7M', 'embedded', 2544, 2, NULL, NULL, '\x58ff6add79921b92dd92029a4642935285e0a7a1812516540b9491679d9af618', 'SETTLED', 1795638006315, 1795638006384, 1795638014805);
INSERT INTO reconciler_outbox ("unique_key", "topic", "producer_group", "tag", "message_keys", "business_id", "half_broker", "half_commit_log_offset", "half_queue_offset", "properties", "body", "content_digest", "state", "created_at_ms", "announced_at_ms", "settled_at_ms") VALUES ('C000020262E4F73CAE9D7FF5AAA99298', 'ORDERS', 'order-service', NULL, NULL, '01M8A5V4N9YY649N6AQHXTFFJP', 'embedded', 3881, 3, NULL, NULL, '\x7c98fe7a65995542ab065923ad8d926905651f1474254335aa2a45eb739932a4', 'SETTLED', 1795638006483, 1795638006530, 1795638017912);
INSERT INTO reconciler_outbox ("unique_key", "topic", "producer_group", "tag", "message_keys", "business_id", "half_broker", "half_commit_log_offset", "half_queue_offset", "properties", "body", "content_digest", "state", "created_at_ms", "announced_at_ms", "settled_at_ms") VALUES ('C000020262E4F73CAE9D7FF5AAA99299', 'ORDERS', 'order-service', NULL, NULL, '01M8A5V4RQFYMZE8B7CA5RC4MB', 'embedded', 4694, 4, NULL, NULL, '\xede3f5758bca823fae99e9b134c297297e63e633e95ac721e8d88d2225fc9a9c', 'SETTLED', 1795638006584, 1795638006656, 1795638017912);
INSERT INTO reconciler_outbox ("unique_key", "topic", "producer_group", "tag", "message_keys", "business_id", "half_broker", "half_commit_log_offset", "half_queue_offset", "properties", "body", "content_digest", "state", "created_at_ms", "announced_at_ms", "settled_at_ms") VALUES ('C000020262E4F73CAE9D7FF5FB76929B', 'ORDERS', 'order-service', NULL, NULL, '01M8A5VRVPNMD1WENXTKB0EX3M', 'embedded', 11717, 11, NULL, NULL, '\xf9868b0c2ed8bcfc0e504997b0af709a0e56415c74ae7402f145af9b6100c701', 'ANNOUNCED', 1795638027128, 1795638027148, NULL);
INSERT INTO reconciler_outbox ("unique_key", "topic", "producer_group", "tag", "message_keys", "business_id", "half_broker", "half_commit_log_offset", "half_queue_offset", "properties", "body", "content_digest", "state", "created_at_ms", "announced_at_ms", "settled_at_ms") VALUES ('C000020262E4F73CAE9D7FF5FB76929C', 'ORDERS', 'order-service', NULL, NULL, '01M8A5VRWEJS4F1VKGEEGVSEJD', 'embedded', 12926, 12, NULL, NULL, '\xf1470584db50181fa6652ab07bc4d37db16d32e4a4e73dedf7ad6fcb2fa6208a', 'ANNOUNCED', 1795638027151, 1795638027164, NULL);
INSERT INTO reconciler_outbox ("unique_key", "topic", "producer_group", "tag", "message_keys", "business_id", "half_broker", "half_commit_log_offset", "half_queue_offset", "properties", "body", "content_digest", "state", "created_at_ms", "announced_at_ms", "settled_at_ms") VALUES ('C000020262E4F73CAE9D7FF5FB9F929D', 'ORDERS', 'order-service', NULL, NULL, '01M8A5VRWZY6F73FCD69MTH8JM', 'embedded', 14135, 13, NULL, NULL, '\x452e7f81e9d277196ae2b952a6ec81424474bc6983ae855031872e04469c9b76', 'ANNOUNCED', 1795638027172, 1795638027191, NULL);
INSERT INTO reconciler_outbox ("unique_key", "topic", "producer_group", "tag", "message_keys", "business_id", "half_broker", "half_commit_log_offset", "half_queue_offset", "properties", "body", "content_digest", "state", "created_at_ms", "announced_at_ms", "settled_at_ms") VALUES ('C000020262E4F73CAE9D7FF5FB9F929E', 'ORDERS', 'order-service', NULL, NULL, '01M8A5VRXZ4NT6NYX8J08AJ440', 'embedded', 14948, 14, NULL, NULL, '\x18c802b4eff5e726afd293d9bef2bd1c1d7ce665ff9b1c3a6c5d8e67d006ecce', 'ANNOUNCED', 1795638027204, 1795638027225, NULL);
INSERT INTO reconciler_outbox ("unique_key", "topic", "producer_group", "tag", "message_keys", "business_id", "half_broker", "half_commit_log_offset", "half_queue_offset", "properties", "body", "content_digest", "state", "created_at_ms", "announced_at_ms", "settled_at_ms") VALUES ('C000020262E4F73CAE9D7FF6180C929F', 'ORDERS', 'order-service', NULL, NULL, '01M8A5W00CXS9HEE0JTATW5H4D', 'embedded', 18546, 17, NULL, NULL, '\xff0a6a21ad9abef615994dbeba0098e4d444e7068aaba9ffbd0645fa8b427a39', 'ANNOUNCED', 1795638034452, 1795638034475, NULL);
INSERT INTO reconciler_outbox ("unique_key", "topic", "producer_group", "tag", "message_keys", "business_id", "half_broker", "half_commit_log_offset", "half_queue_offset", "properties", "body", "content_digest", "state", "created_at_ms", "announced_at_ms", "settled_at_ms") VALUES ('C000020262E4F73CAE9D7FF6180C92A0', 'ORDERS', 'order-service', NULL, NULL, '01M8A5W01D76N68VXRYPF4XPB5', 'embedded', 19359, 18, NULL, NULL, '\x7e4014119bd0773ca183d1517189de7f0b13a13b57f9884ed6c3bff2730b6b80', 'ANNOUNCED', 1795638034484, 1795638034493, NULL);
INSERT INTO reconciler_outbox ("unique_key", "topic", "producer_group", "tag", "message_keys", "business_id", "half_broker", "half_commit_log_offset", "half_queue_offset", "properties", "body", "content_digest", "state", "created_at_ms", "announced_at_ms", "settled_at_ms") VALUES ('C000020262E4F73CAE9D7FF6180C92A1', 'ORDERS', 'order-service', NULL, NULL, '01M8A5W01ZHZD6220DGYPFVHXF', 'embedded', 20172, 19, NULL, NULL, '\x18855f5abc69731699e15c7256e2fe84846e7ac2fde5c9cf0a8825de347a2d16', 'ANNOUNCED', 1795638034495, 1795638034506, NULL);
INSERT INTO reconciler_outbox ("unique_key", "topic", "producer_group", "tag", "message_keys", "business_id", "half_broker", "half_commit_log_offset", "half_queue_offset", "properties", "body", "content_digest", "state", "created_at_ms", "announced_at_ms", "settled_at_ms") VALUES ('C000020262E4F73CAE9D7FF665D092A2', 'ORDERS', 'order-service', NULL, NULL, '01M8A5WKEG5YF4S8V971WS695M', 'embedded', 28407, 29, NULL, NULL, '\x08a75f46d2cdc8db438f7e7d73a24c3d4046f6dc26140629d92514ad95139d39', 'ANNOUNCED', 1795638054366, 1795638054425, NULL);
INSERT INTO reconciler_outbox ("unique_key", "topic", "producer_group", "tag", "message_keys", "business_id", "half_broker", "half_commit_log_offset", "half_queue_offset", "properties", "body", "content_digest", "state", "created_at_ms", "announced_at_ms", "settled_at_ms") VALUES ('C000020262E4F73CAE9D7FF6662992A3', 'ORDERS', 'order-service', NULL, NULL, '01M8A5WKH9AKY9W0XPJEXN4PRE', 'embedded', 29616, 30, NULL, NULL, '\x533353055a52eac7e97cec97b29266adf72567a64f8708b182b5d1d9fd3d21f7', 'ANNOUNCED', 1795638054456, 1795638054491, NULL);
INSERT INTO reconciler_outbox ("unique_key", "topic", "producer_group", "tag", "message_keys", "business_id", "half_broker", "half_commit_log_offset", "half_queue_offset", "properties", "body", "content_digest", "state", "created_at_ms", "announced_at_ms", "settled_at_ms") VALUES ('C000020262E4F73CAE9D7FF685A492A4', 'ORDERS', 'order-service', NULL, NULL, '01M8A5WVD4KT9DZEZ26KDJGQPG', 'embedded', 32318, 34, NULL, NULL, '\xbcdff777dca4f021898a2d6c6e30a13137802abc94390feb6472ba86bf0d2dbf', 'ANNOUNCED', 1795638062508, 1795638062533, NULL);
INSERT INTO reconciler_outbox ("unique_key", "topic", "producer_group", "tag", "message_keys", "business_id", "half_broker", "half_commit_log_offset", "half_queue_offset", "properties", "body", "content_digest", "state", "created_at_ms", "announced_at_ms", "settled_at_ms") VALUES ('C000020262E4F73CAE9D7FF685D992A5', 'ORDERS', 'order-service', NULL, NULL, '01M8A5WVESP18C5V1QNHSTTYQS', 'embedded', 33131, 35, NULL, NULL, '\xc66fafbbd4e34a45a2b9c5dcc2cfb0abd216fb9a4b890142691326391e524cd6', 'ANNOUNCED', 1795638062554, 1795638062588, NULL);
INSERT INTO reconciler_outbox ("unique_key", "topic", "producer_group", "tag", "message_keys", "business_id", "half_broker", "half_commit_log_offset", "half_queue_offset", "properties", "body", "content_digest", "state", "created_at_ms", "announced_at_ms", "settled_at_ms") VALUES ('C000020262E4F73CAE9D7FF6865D92A6', 'ORDERS', 'order-service', NULL, NULL, '01M8A5WVJX0FW47VDX35P9DWMV', 'embedded', 34340, 36, NULL, NULL, '\x1dfa1b606d975745571a96ae96233faac33bb1ee1d69e03df8560c1d5320b253', 'NEW', 1795638062692, NULL, NULL);
INSERT INTO reconciler_outbox ("unique_key", "topic", "producer_group", "tag", "message_keys", "business_id", "half_broker", "half_commit_log_offset", "half_queue_offset", "properties", "body", "content_digest", "state", "created_at_ms", "announced_at_ms", "settled_at_ms") VALUES ('C000020262E4F73CAE9D7FF6866A92A7', 'ORDERS', 'order-service', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'ROLLED_BACK', 1795638062701, NULL, NULL);
DELETE FROM reconciler_outbox_identity;
INSERT INTO reconciler_outbox_identity ("id", "identity") VALUES (1, '146f2561fa6008afa282c54b3b9c8c42');

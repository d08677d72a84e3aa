-- The judge of the audit in DuckDB's SQL, written from docs/explanation/how-the-audit-judges.md ("judges") and
-- docs/reference/audit-classes.md ("classes") by somebody who had not read the one in reconciler/audit.
-- It reads these tables, rows of which may be there twice: outbox, inbox, effects, candidate, repair (the columns of
-- contract/evidence_layout.py); announced, consumed, "left", pending, "snapshot", round (contract/history_row.py);
-- the_window(start_ms, end_ms, read_ms, skew_ms, history, ledger); and
-- asked(topic, "group", tags, grace_ms, late_ms, outboxes): whether every outbox of its producers was given.
-- It makes the table judged(topic, "group", key, time_ms, class).

-- judges: "Rounds later than a day after the window's close never count." The close: end + late_after_seconds.
CREATE TEMP TABLE subscription AS
SELECT asked.*, the_window.*, end_ms + late_ms + 86400000 AS last_round_ms FROM asked, the_window;

-- "as_of is the earlier of two times: up to when each shard of the subscription has rounds in history, and when the
-- databases were read".
CREATE TEMP TABLE clock AS
SELECT topic, "group", least(any_value(read_ms), min(shard_ms)) AS as_of_ms FROM (
  SELECT s.topic, s."group", r.shard, any_value(s.read_ms) AS read_ms, max(r.at_ms) AS shard_ms
  FROM subscription s
  LEFT JOIN round r ON r.topic = s.topic AND r.consumer_group = s."group" AND r.at_ms <= s.last_round_ms
  GROUP BY ALL
) GROUP BY ALL;

-- "committed: an outbox row of the topic, of whichever producer group, that is not ROLLED_BACK; it beats a tombstone of
-- the same key". "If there are several rows, the earliest committed one counts, else the earliest tombstone". "tag
-- accepted: the subscription takes every tag, or the tag of a committed row; a message without a tag is taken only by
-- groups that take every tag". "the smallest content digest".
CREATE TEMP TABLE row_of AS
SELECT s.topic, s."group", o.key,
  min(o.created_at_ms) FILTER (o.state <> 'ROLLED_BACK') AS committed_ms,
  min(o.created_at_ms) FILTER (o.state = 'ROLLED_BACK') AS tombstone_ms,
  coalesce(bool_or(s.tags IS NULL OR list_contains(s.tags, o.tag)) FILTER (o.state <> 'ROLLED_BACK'), false) AS accepted,
  min(o.content_digest) FILTER (o.state <> 'ROLLED_BACK') AS digest
FROM outbox o JOIN subscription s ON o.topic = s.topic
GROUP BY ALL;

-- "effect: a row in the group's inbox"; an incomplete one "is no effect and no absence" (classes), and its applied_at_ms
-- shows the commit all the same.
CREATE TEMP TABLE inbox_of AS
SELECT s.topic, s."group", i.key,
  bool_or(i.incomplete IS NOT NULL) AS is_incomplete,
  min(i.applied_at_ms) AS seen_ms,
  min(i.applied_at_ms) FILTER (i.incomplete IS NULL) AS applied_ms,
  min(i.content_digest) FILTER (i.incomplete IS NULL) AS digest
FROM inbox i JOIN subscription s ON i.topic = s.topic AND i.consumer_group = s."group" GROUP BY ALL;

-- "or a number above 0 among the business effects where they were given"; "the largest number of effects".
CREATE TEMP TABLE effects_of AS
SELECT s.topic, s."group", e.key, max(e.effects) AS effects
FROM effects e JOIN subscription s ON e.topic = s.topic AND e.consumer_group = s."group" WHERE e.effects > 0 GROUP BY ALL;

-- "quarantined: the newest row of the ledger's candidate is QUARANTINED, or was dismissed from there (SETTLED with a
-- verdict that quarantines), or is settled as BEFORE_SINCE". Verdicts that quarantine: reference/verdicts.md. Of rows
-- that are equally new, one that is quarantined counts.
CREATE TEMP TABLE candidate_of AS
SELECT s.topic, s."group", c.key, min(c.first_seen_ms) AS first_seen_ms,
  max({at_ms: c.updated_at_ms, is_quarantined: c.state = 'QUARANTINED' OR (c.state = 'SETTLED' AND c.verdict IN
    ('QUARANTINED', 'DEAD_LETTERED', 'DELIVERED_NOT_APPLIED', 'COLLISION', 'INCOMPLETE', 'BEFORE_SINCE'))
  }).is_quarantined AS is_quarantined
FROM candidate c JOIN subscription s ON c.topic = s.topic AND c.consumer_group = s."group" GROUP BY ALL;

-- "a repair that was sent and reaches the group: attempts > 0, and its scope is * or the group". "first send:
-- first_sent_at_ms; if it is missing, sent_at_ms of a repair that was sent once; else the first send is not known and
-- counts against no class. Each repair counts by itself: of two, one may be unnecessary".
CREATE TEMP TABLE repair_of AS
SELECT topic, "group", key, min(made_ms) AS made_ms, bool_or(is_sent) AS is_sent, max(first_sent_ms) AS first_sent_ms
FROM (
  SELECT s.topic, s."group", r.key, r.scope, min(r.created_at_ms) AS made_ms, bool_or(r.attempts > 0) AS is_sent,
    min(CASE
      WHEN r.attempts = 0 THEN NULL
      WHEN r.first_sent_at_ms IS NOT NULL THEN r.first_sent_at_ms
      WHEN r.attempts = 1 THEN r.sent_at_ms
    END) AS first_sent_ms
  FROM repair r JOIN subscription s ON r.topic = s.topic AND r.scope IN ('*', s."group") GROUP BY ALL
) GROUP BY ALL;

-- "announced: in the subscription's announced stream". Of two at the same time the later generation is the newest.
CREATE TEMP TABLE announced_of AS
SELECT s.topic, s."group", a.key, min(a.at_ms) AS first_ms,
  max({at_ms: a.at_ms, generation: a.generation, shard: a.shard, epoch: a.epoch}) AS newest
FROM announced a JOIN subscription s
  ON a.topic = s.topic AND a.consumer_group = s."group" AND a.at_ms <= s.last_round_ms
GROUP BY ALL;

CREATE TEMP TABLE consumed_of AS
SELECT DISTINCT s.topic, s."group", c.key FROM consumed c JOIN subscription s
  ON c.topic = s.topic AND c.consumer_group = s."group" AND c.at_ms <= s.last_round_ms;

-- "without a ledger, a row of history's left says so".
CREATE TEMP TABLE left_of AS
SELECT s.topic, s."group", l.key,
  bool_or(l.reason = 'QUARANTINED' OR coalesce(l.detail IN ('QUARANTINED', 'DEAD_LETTERED', 'DELIVERED_NOT_APPLIED',
    'COLLISION', 'INCOMPLETE', 'BEFORE_SINCE'), false)) AS is_quarantined
FROM "left" l JOIN subscription s ON l.topic = s.topic AND l.consumer_group = s."group" GROUP BY ALL;

-- "next snapshot: the first snapshot of the key's shard after its newest announcement: later by Redis' clock, in the same
-- life of Redis, and not of an earlier generation. Without one the key is accounted for".
CREATE TEMP TABLE next_snapshot AS
SELECT a.topic, a."group", a.newest, min(n.at_ms) AS at_ms
FROM (SELECT DISTINCT topic, "group", newest FROM announced_of) a
JOIN "snapshot" n ON n.topic = a.topic AND n.consumer_group = a."group" AND n.shard = a.newest.shard
  AND n.at_ms > a.newest.at_ms AND n.epoch = a.newest.epoch AND n.generation >= a.newest.generation
GROUP BY ALL;

CREATE TEMP TABLE forgotten AS
SELECT a.topic, a."group", a.key
FROM announced_of a JOIN next_snapshot n ON n.topic = a.topic AND n."group" = a."group" AND n.newest = a.newest
WHERE NOT EXISTS (
  SELECT 1 FROM pending p WHERE p.topic = a.topic AND p.consumer_group = a."group" AND p.key = a.key
    AND p.shard = a.newest.shard AND p.at_ms = n.at_ms);

-- "Keys that only the history's consumed, left or pending name belong to no window".
CREATE TEMP TABLE known AS
SELECT topic, "group", key FROM row_of UNION SELECT topic, "group", key FROM inbox_of
UNION SELECT topic, "group", key FROM effects_of UNION SELECT topic, "group", key FROM candidate_of
UNION SELECT topic, "group", key FROM repair_of UNION SELECT topic, "group", key FROM announced_of;

CREATE TEMP TABLE facts AS
SELECT k.topic, k."group", k.key, s.*, c.as_of_ms,
  o.committed_ms, o.tombstone_ms, coalesce(o.accepted, false) AS accepted,
  o.committed_ms IS NOT NULL AS committed,
  coalesce(o.committed_ms, o.tombstone_ms) AS row_ms,
  coalesce(i.is_incomplete, false) AS is_incomplete,
  i.applied_ms IS NOT NULL OR coalesce(e.effects > 0, false) AS effect,
  i.applied_ms, coalesce(e.effects, 0) AS effects,
  coalesce(o.digest <> i.digest, false) AS differs,
  d.key IS NOT NULL AS judged,
  coalesce(d.is_quarantined, false) OR coalesce(NOT s.ledger AND l.is_quarantined, false) AS quarantined,
  coalesce(r.is_sent, false) AS repaired, r.first_sent_ms, r.made_ms,
  a.key IS NOT NULL AS announced, t.key IS NOT NULL AS consumed, l.key IS NOT NULL AS has_left,
  f.key IS NOT NULL AS is_forgotten,
  least(a.first_ms, i.seen_ms, d.first_seen_ms) AS seen_ms
FROM known k
JOIN (SELECT topic AS s_topic, "group" AS s_group, grace_ms, late_ms, start_ms, end_ms, skew_ms, history, ledger, outboxes
      FROM subscription) s ON s_topic = k.topic AND s_group = k."group"
JOIN clock c USING (topic, "group")
LEFT JOIN row_of o USING (topic, "group", key) LEFT JOIN inbox_of i USING (topic, "group", key)
LEFT JOIN effects_of e USING (topic, "group", key) LEFT JOIN candidate_of d USING (topic, "group", key)
LEFT JOIN repair_of r USING (topic, "group", key) LEFT JOIN announced_of a USING (topic, "group", key)
LEFT JOIN consumed_of t USING (topic, "group", key) LEFT JOIN left_of l USING (topic, "group", key)
LEFT JOIN forgotten f USING (topic, "group", key);

-- judges, "Which keys belong to a window", row by row of its table.
CREATE TEMP TABLE placed AS
SELECT *, CASE
    WHEN NOT committed AND tombstone_ms IS NOT NULL THEN tombstone_ms
    WHEN row_ms IS NOT NULL AND seen_ms - row_ms <= late_ms THEN row_ms
    WHEN row_ms IS NOT NULL AND seen_ms - row_ms <= late_ms + 86400000 THEN seen_ms - late_ms
    WHEN row_ms IS NOT NULL THEN row_ms + 2 * late_ms
    WHEN seen_ms IS NOT NULL THEN seen_ms
    WHEN made_ms IS NOT NULL THEN made_ms
    ELSE start_ms
  END AS time_ms,
  -- "older than the grace period: as_of - created_at_ms > grace_period".
  as_of_ms - committed_ms > grace_ms AS is_old
FROM facts;

-- classes: "The first rule that matches decides". "A key belongs to the window if start <= time < end".
CREATE TEMP TABLE judged AS
SELECT topic, "group", key, time_ms, CASE
    WHEN is_incomplete THEN 'EFFECT_INCOMPLETE'
    WHEN outboxes AND effect AND NOT committed THEN 'EFFECT_WITHOUT_COMMIT'
    WHEN effects > 1 THEN 'DOUBLE_EFFECT'
    WHEN repaired AND effect AND differs THEN 'REPAIR_DIFFERS'
    WHEN effect AND first_sent_ms - applied_ms > skew_ms THEN 'UNNECESSARY_REPAIR'
    WHEN history AND ledger AND committed AND accepted AND NOT effect AND is_old AND NOT announced AND NOT judged
      THEN 'NOT_ANNOUNCED_NOT_FOUND'
    WHEN history AND ledger AND announced AND NOT consumed AND NOT has_left AND is_forgotten AND NOT judged
      AND NOT (committed AND NOT accepted) THEN 'UNACCOUNTED'
    WHEN committed AND accepted AND NOT effect AND NOT quarantined AND is_old THEN 'LOST'
    WHEN quarantined THEN 'QUARANTINED'
    WHEN effect AND repaired THEN 'REPAIRED'
    WHEN effect AND applied_ms - committed_ms > late_ms THEN 'EFFECT_LATE'
    WHEN effect THEN 'EFFECT_IN_TIME'
    WHEN committed AND NOT accepted THEN 'FILTERED'
    WHEN NOT committed AND tombstone_ms IS NULL THEN 'REJECTED'
    WHEN NOT committed THEN 'ROLLED_BACK'
    ELSE 'PENDING'
  END AS class
FROM placed WHERE time_ms >= start_ms AND time_ms < end_ms;

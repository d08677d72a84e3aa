"""Defaults that a setting and a rule of the policy share. Each default is defined only here.

A default that only a setting uses is in reconciler/settings/schema.py.
"""

from __future__ import annotations

#: Keys younger than this are never judged.
GRACE_PERIOD_SECONDS = 30.0
#: People are told of a message that has waited for its group for longer than this.
LAG_ALARM_SECONDS = 300.0
#: Length of the lease of a shard's rounds, and of the lease of its announcements.
LEASE_SECONDS = 30.0
#: Announcements of a shard are suspended above this number of announced keys.
HALF_SET_KEYS_MAX = 1_000_000
#: Largest difference between the clocks of Redis, brokers and databases.
SKEW_MARGIN_SECONDS = 10.0
#: How long a broker keeps a half: the brokers' fileReservedTime (MessageStoreConfig).
RETENTION_HOURS = 72.0
RETENTION_SECONDS = RETENTION_HOURS * 3600.0
#: The longest time that a database may take to answer a statement.
STATEMENT_SECONDS = 10.0
#: Maximum number of keys that one round of a subscription verifies.
CANDIDATES_MAX = 2_000

#: Repairs of one topic per second, on average.
REPAIRS_PER_SECOND = 200.0
#: Length of the lease of a claimed repair.
CLAIM_LEASE_SECONDS = 60.0
#: The breaker stays closed while a round has fewer new losses than this.
BREAKER_CANDIDATES_MIN = 1_000
#: Share of a round's announcements above which the breaker opens.
BREAKER_SHARE = 0.05

#: The sweeper announces a NEW outbox row that is older than this. The row's producer had enough time to announce the
#: row.
SWEEP_AFTER_SECONDS = 5.0
#: The sweeper looks up an ANNOUNCED row that is older than this in the inboxes.
SETTLE_AFTER_SECONDS = 3_600.0
#: The sweeper announces a row again if the row is still unsettled after this time.
ANNOUNCE_AGAIN_AFTER_SECONDS = 21_600.0
#: SETTLED and ROLLED_BACK rows are deleted after this number of days.
OUTBOX_KEEP_DAYS = 30

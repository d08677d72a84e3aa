"""Defaults that a setting shows and a rule of the policy starts from: each is written here, and nowhere else.

A setting's own default, which no rule has, is written in reconciler/settings/schema.py.
"""

from __future__ import annotations

#: A key younger than this is never judged.
GRACE_PERIOD_SECONDS = 30.0
#: A message that waits longer for its group is told.
LAG_ALARM_SECONDS = 300.0
#: Lease of a shard's rounds and of its announcements.
LEASE_SECONDS = 30.0
#: Announced keys in one shard above which announcements are suspended.
HALF_SET_KEYS_MAX = 1_000_000
#: Largest difference between the clocks of Redis, brokers and databases.
SKEW_MARGIN_SECONDS = 10.0
#: fileReservedTime of brokers (MessageStoreConfig): how long a half can be found.
RETENTION_HOURS = 72.0
RETENTION_SECONDS = RETENTION_HOURS * 3600.0
#: How long a statement to a database is waited for.
STATEMENT_SECONDS = 10.0
#: Keys verified in one round of a subscription.
CANDIDATES_MAX = 2_000

#: Repairs of a topic, on average.
REPAIRS_PER_SECOND = 200.0
#: Lease of a claimed repair.
CLAIM_LEASE_SECONDS = 60.0
#: Fewer new losses in a round never open the breaker.
BREAKER_CANDIDATES_MIN = 1_000
#: Share of a round's announcements above which the breaker opens.
BREAKER_SHARE = 0.05

#: A NEW outbox row older than this is announced by the sweeper: its producer had its time.
SWEEP_AFTER_SECONDS = 5.0
#: An ANNOUNCED row older than this is looked up in the inboxes.
SETTLE_AFTER_SECONDS = 3_600.0
#: A row still unsettled after this is announced again.
ANNOUNCE_AGAIN_AFTER_SECONDS = 21_600.0
#: SETTLED and ROLLED_BACK rows are deleted after this.
OUTBOX_KEEP_DAYS = 30

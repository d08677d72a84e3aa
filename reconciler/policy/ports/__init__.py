"""All ports: what the policy (rounds, gate, verdicts, repairs, outage) asks of the outside world.

Every call has one effect and says what a crash in its middle leaves. Ports raise only TransientError (nothing is
lost, the next round tries again) or PermanentError; "not found" and "don't know" are values
(reconciler/policy/evidence.py).

Adapters: reconciler/shards (Redis), reconciler/ledger (SQL), reconciler/evidence (brokers, outboxes, inboxes).
reconciler/wiring puts them together.
"""

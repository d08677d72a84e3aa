"""The ports: all questions of the policy to the outside world, about rounds, gate, verdicts, repairs and outages.

Every call has one effect, and its docstring says what a crash in the middle leaves. Ports raise only TransientError
(nothing is lost, and the next round tries again) or PermanentError; "not found" and "don't know" are values
(reconciler/policy/evidence.py).

Adapters: reconciler/shards (Redis), reconciler/ledger (SQL), reconciler/evidence (brokers, outboxes, inboxes).
reconciler/wiring connects them.
"""

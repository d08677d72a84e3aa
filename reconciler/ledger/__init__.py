"""Adapters of the ledger's ports: Redis for the shards' memory, SQL for verdicts, repairs and rounds.

Also both in memory (memory_shards.py, memory.py), held to the same contract tests.
"""

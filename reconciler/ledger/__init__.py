"""The ledger in SQL: verdicts, repairs and their claims, rounds, floors, holds, outages, retention."""

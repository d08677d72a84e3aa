"""Processes for tests that kill or race them, forked from a server that has imported what they need.

Each would spend more time on its imports than on its work.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing.context import ForkServerContext

#: Imported once for all processes of a pytest worker: its server starts with the first of them.
PRELOADED = ["tests.integration.history.writer_process", "tests.contract.ledger.rows", "reconciler.ledger.sql_ledger"]


def fork_server() -> ForkServerContext:
    """Starts processes that share no memory, thread, connection or lock with the test."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context

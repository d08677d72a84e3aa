"""The application is loaded once and forked; each worker opens its own producer."""

from typing import Any

preload_app = True


def post_fork(server: Any, worker: Any) -> None:
    """In each worker, before its first request."""
    open_orders = worker.app.wsgi().extensions["open_orders"]
    open_orders()


def worker_exit(server: Any, worker: Any) -> None:
    """Announces what waits, and leaves the group."""
    worker.app.wsgi().extensions["orders"].shutdown()

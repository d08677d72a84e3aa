"""Bills orders until it is stopped. The service itself is docs/examples/billing_service.py."""

import signal
import threading
from pathlib import Path

from billing_service import bill_orders  # type: ignore[import-not-found]  # mounted beside this file

from checkback_consumers import CommitRecorder
from reconciler.sql.engines import open_engine


def main() -> None:
    """Returns after SIGTERM."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    database = open_engine(Path("/run/secrets/billing_inbox_url").read_text().strip())
    redis_url = Path("/run/secrets/business_redis_url").read_text().strip()
    recorder = CommitRecorder.open(redis_url, environment="compose", group="billing")
    with recorder, bill_orders(database, recorder, "namesrv:9876"):
        stop.wait()


if __name__ == "__main__":
    main()

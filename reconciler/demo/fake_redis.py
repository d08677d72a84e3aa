"""fakeredis as a server process, for machines without redis-server: `python -m reconciler.demo.fake_redis PORT`."""

from __future__ import annotations

import signal
import sys
import threading

from fakeredis import TcpFakeServer


def main(port: int) -> int:
    """Serves until SIGTERM."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    server = TcpFakeServer(("127.0.0.1", port), server_type="redis")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    while not stop.wait(1):  # the limit is needed because a signal just before the wait does not end the wait
        pass
    server.shutdown()
    server.server_close()
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))

"""Health of a container: exit code 0 if `reconciler run`, `sweep` or `web` in it answers /livez.

A dependency that is away is no reason to start the process again, so /readyz is not asked.
"""

import ssl
import sys
import urllib.request
from contextlib import suppress

#: Metrics of run and sweep, by the image's RECONCILER_METRICS__LISTEN; the console with and without TLS.
PLACES = ("http://127.0.0.1:9378", "http://127.0.0.1:8378", "https://127.0.0.1:8378")
SECONDS_MAX = 3.0


def is_alive() -> bool:
    """Whether one of the places answers."""
    unchecked = ssl.create_default_context()  # a certificate names the host, and not this address
    unchecked.check_hostname = False
    unchecked.verify_mode = ssl.CERT_NONE
    for place in PLACES:
        with (
            suppress(OSError, ValueError),
            urllib.request.urlopen(f"{place}/livez", timeout=SECONDS_MAX, context=unchecked) as answer,  # noqa: S310 - of this list
        ):
            return bool(answer.status == 200)
    return False


if __name__ == "__main__":
    sys.exit(0 if is_alive() else 1)

"""``python -m reconciler.embedded``: the embedded broker with the standard library alone."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from reconciler.contract.visible_text import visible_line
from reconciler.embedded.families import DEFAULT_FAMILY, FAMILIES
from reconciler.embedded.serving import client_tls, serve, server_tls
from reconciler.errors import ConfigurationError


def main(arguments: list[str] | None = None) -> int:
    """Parses the command line and serves. Returns 2 for arguments that cannot work."""
    parser = argparse.ArgumentParser(prog="python -m reconciler.embedded", description=__doc__)
    parser.add_argument("--listen", default="127.0.0.1:9876", help="HOST:PORT; port 0 picks a free one")
    parser.add_argument("--family", default=DEFAULT_FAMILY, help="one of " + ", ".join(FAMILIES))
    parser.add_argument("--data", type=Path, help="folder of the log that survives kill -9; else in memory")
    parser.add_argument("--advertise", help="host that clients reach the broker under, if not that of --listen")
    parser.add_argument("--namesrv", help="register with these name servers instead: HOST:PORT;HOST:PORT")
    parser.add_argument(
        "--namesrv-ca", type=Path, help="register over TLS: name servers' authorities; shows --tls-certificate"
    )
    parser.add_argument("--knob", action="append", default=[], metavar="NAME=VALUE", help="a fault or a property")
    parser.add_argument("--tls-certificate", type=Path, help="PEM file: speak TLS, too")
    parser.add_argument("--tls-key", type=Path, help="PEM file, if the key is not with the certificate")
    parser.add_argument("--tls-client-ca", type=Path, help="clients must show a certificate of these authorities")
    parser.add_argument("--tls-mode", help="permissive (as brokers by default), enforcing or disabled")
    parser.add_argument("--users", type=Path, help="TOML file of users: requests must be signed by one of them")
    chosen = parser.parse_args(arguments)
    try:
        return serve(
            chosen.listen,
            family=chosen.family,
            data=chosen.data,
            knobs=chosen.knob,
            name_servers=chosen.namesrv,
            name_server_tls=client_tls(ca=chosen.namesrv_ca, certificate=chosen.tls_certificate, key=chosen.tls_key),
            advertise=chosen.advertise,
            users=chosen.users,
            tls=server_tls(
                certificate=chosen.tls_certificate,
                key=chosen.tls_key,
                client_ca=chosen.tls_client_ca,
                mode=chosen.tls_mode,
            ),
        )
    except ConfigurationError as error:
        parser.exit(2, f"{visible_line(str(error))}\n")


if __name__ == "__main__":
    sys.exit(main())

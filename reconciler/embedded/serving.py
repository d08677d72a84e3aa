"""The embedded broker as a process. ``reconciler broker`` and ``python -m reconciler.embedded`` run it."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

from reconciler.clock import SystemClock
from reconciler.embedded.access_control import read_users
from reconciler.embedded.broker import Broker
from reconciler.embedded.families import DEFAULT_FAMILY, family_named
from reconciler.embedded.faults import Faults
from reconciler.embedded.listening import Listening, bind_ports, parse_address
from reconciler.embedded.settings import BrokerSettings
from reconciler.embedded.tls import ServerTls, TlsMode
from reconciler.errors import InvalidValue
from reconciler.rocketmq.client.tls import TlsSettings
from reconciler.rocketmq.client.tls_context import TlsContext


def turn(knob: str, faults: Faults, settings: BrokerSettings) -> None:
    """Applies one "NAME=VALUE" before the broker starts. Raises InvalidValue, which names the choices."""
    name, separator, value = knob.partition("=")
    if not separator:
        raise InvalidValue("knob", knob, "NAME=VALUE")
    if name in faults.KNOBS:
        faults.apply(name, value)
    elif not settings.configure(name, value):
        remedy = f"a fault ({', '.join(faults.KNOBS)}) or a broker property ({', '.join(BrokerSettings.names())})"
        raise InvalidValue("knob", name, remedy)


def server_tls(
    *, certificate: Path | None, key: Path | None, client_ca: Path | None, mode: str | None
) -> ServerTls | None:
    """Makes TLS settings from arguments. With `client_ca`, clients must show a certificate. Returns None if no
    certificate is given.

    Raises InvalidValue.
    """
    if certificate is None:
        if key or client_ca or mode not in (None, TlsMode.DISABLED):
            raise InvalidValue("--tls-certificate", None, "needed together with the other --tls options")
        return None
    if mode is not None and mode not in list(TlsMode):
        raise InvalidValue("--tls-mode", mode, ", ".join(TlsMode))
    return ServerTls(
        certificate_file=certificate,
        key_file=key,
        client_ca_file=client_ca,
        requires_client_certificate=client_ca is not None,
        mode=TlsMode(mode or TlsMode.PERMISSIVE),
    )


def client_tls(*, ca: Path | None, certificate: Path | None, key: Path | None) -> TlsSettings | None:
    """Makes the TLS settings for registering from arguments. The broker shows its own certificate if a server asks for
    one. Returns None without TLS."""
    if ca is None:
        return None
    files = [None if path is None else str(path) for path in (ca, certificate, key)]
    return TlsSettings(ca_file=files[0], certificate_file=files[1], key_file=files[2])


def serve(
    listen: str,
    *,
    family: str = DEFAULT_FAMILY,
    data: Path | None = None,
    knobs: Iterable[str] = (),
    settings: BrokerSettings | None = None,
    name_servers: str | None = None,
    name_server_tls: TlsSettings | None = None,
    advertise: str | None = None,
    tls: ServerTls | None = None,
    users: Path | None = None,
) -> int:
    """Serves name server and broker on one port until SIGTERM or SIGINT, then returns 0. The broker also listens on
    this port minus 2.

    Each of ``knobs`` is a text "NAME=VALUE", which sets a fault (Faults.apply) or a broker property
    (BrokerSettings.configure). ``name_server_tls`` encrypts the connections to ``name_servers``. ``users`` is a file of
    users (read_users), and one of them must sign each request. When the broker is ready, this function prints one JSON
    line ``{"listen": "127.0.0.1:PORT", "family": "5.x"}``. Raises InvalidValue or ConfigurationError before that.
    """
    chosen = family_named(family)
    host, port = parse_address(listen)
    servers = [parse_address(text, field_name="namesrv") for text in (name_servers or "").split(";") if text]
    if name_server_tls is not None and not servers:
        raise InvalidValue("namesrv", name_servers, "the name servers that are to be registered with over TLS")
    if tls is not None:
        tls.context()  # before a port is taken, because its files may be wrong
    registering = None if name_server_tls is None else TlsContext(name_server_tls)
    known_users = None if users is None else read_users(users)
    faults = Faults()
    settings = settings or BrokerSettings()
    for knob in knobs:
        turn(knob, faults, settings)

    async def run() -> None:
        stopping = _set_by_signals()
        sockets = bind_ports(host, port, with_vip=True)
        try:
            broker = Broker(
                family=chosen,
                settings=settings,
                faults=faults,
                clock=SystemClock(),
                data=data,
                registers_itself=not servers,
                users=known_users,
            )
        except BaseException:
            for listener in sockets:
                listener.close()
            raise
        listening = Listening(
            broker=broker,
            sockets=sockets,
            advertise=advertise,
            name_servers=servers,
            name_server_tls=registering,
            tls=tls,
        )
        await listening.start()
        ready = {"listen": broker.services.address, "family": chosen.name}
        sys.stdout.write(json.dumps(ready, separators=(",", ":")) + "\n")
        sys.stdout.flush()
        await stopping.wait()
        await listening.stop()

    asyncio.run(run())
    return 0


def _set_by_signals() -> asyncio.Event:
    """Makes an event that SIGTERM and SIGINT set, in the running loop."""
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    return stopping

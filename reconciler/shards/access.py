"""Redis clients that never repeat a command by themselves, and one translation of redis-py's errors.

redis-py 6 and newer sends a command again after a time-out or a reset. If only the reply to a MULTI was lost, the
second MULTI finds empty sets and reports that nothing is missing. Repeating also turns a call of 50 ms into one of
seconds. So every client has Retry(NoBackoff(), 0). URLs:

    redis://user:password@host:6379/0                 rediss:// the same over TLS
    unix://user:password@/run/redis.sock?db=0
    redis+sentinel://user:password@host:26379,host2:26379/service/0?sentinel_password=...&ssl=true
    redis+cluster://user:password@host:6379,host2:6379?ssl=true
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NoReturn, TypeAlias, TypeGuard

import redis
from redis import exceptions
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection, parse_url
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelManagedConnection, SentinelManagedSSLConnection

from reconciler.clock import Backoff, Clock
from reconciler.contract.own_limits import lacking
from reconciler.contract.secret import Secret, revealed
from reconciler.contract.urls import Url, is_over_tls, read_redis_url, shown_url
from reconciler.errors import ConfigurationError, InvalidValue, InvariantViolation, RedisAway, RedisUnasked
from reconciler.shards.changing_login import SENTINEL_PARAMETERS, ChangingLogin, changing_login, without_login
from reconciler.silence import Silence

RedisClient: TypeAlias = redis.Redis | RedisCluster

TIMEOUT_SECONDS_DEFAULT = 2.0
#: Maximum number of connections of one client, in a cluster to each node; the client refuses one more with RedisAway.
CONNECTIONS_MAX = 256
#: Arguments that only connections to the service get, and connections to its Sentinels do not.
_OF_THE_SERVICE = ("decode_responses", "redis_connect_func", "credential_provider")
_TRANSLATED = (exceptions.RedisError, exceptions.RedisClusterException, OSError)
#: Number of a transaction's answers that are searched for a READONLY error.
_TRANSACTION_COMMANDS = 64
SENTINEL_PORT_DEFAULT = 26379
PORT_DEFAULT = 6379


def open_client(
    url: Secret,
    *,
    timeout_seconds: float = TIMEOUT_SECONDS_DEFAULT,
    connect_timeout_seconds: float | None = None,
    primary_only: bool = False,
    silences: RedisSilences | None = None,
) -> RedisClient:
    """Returns a thread-safe client that never retries and connects at first use. The caller closes it.

    The client returns bytes. `timeout_seconds` limits the wait for an answer, and for a connection unless
    `connect_timeout_seconds` is given. With `primary_only`, each new connection asks for its ROLE (the login needs
    +role), and replicas are refused. If the URL changes, new connections use its present user and password. Clients of
    the same servers share `silences`. Raises InvalidValue for a malformed URL, and RedisAway if no node of a cluster
    answers.
    """
    arguments: dict[str, Any] = {
        "socket_timeout": timeout_seconds,
        "socket_connect_timeout": timeout_seconds if connect_timeout_seconds is None else connect_timeout_seconds,
        "socket_keepalive": True,
        "retry": Retry(NoBackoff(), 0),
        "health_check_interval": 0,
        "max_connections": CONNECTIONS_MAX,
        "decode_responses": False,
    }
    try:
        found = read_redis_url(url)
    except ValueError as error:
        raise InvalidValue("redis url", shown_url(url), str(error)) from None  # the text may hold a password
    text = revealed(url)
    checks_role = primary_only and found.scheme != "redis+cluster"  # a cluster's replica sends commands to its primary
    login = changing_login(url)
    if login is not None:
        text, arguments["credential_provider"] = without_login(text), login
        found = read_redis_url(text)
    if checks_role or (login is not None and found.scheme != "redis+cluster"):
        arguments["redis_connect_func"] = _Connecting(login, checks_role=checks_role)
    match found.scheme:
        case "redis+sentinel":
            at_sentinels = changing_login(url, is_of_sentinels=True)
            return _sparing(_sentinel(found, arguments, _options(text, found), at_sentinels), silences)
        case "redis+cluster":
            return _cluster(found, arguments | _options(text, found), silences)
        case "unix":
            del arguments["socket_keepalive"], arguments["socket_connect_timeout"]
    arguments["connection_class"] = _CONNECTIONS[found.scheme]
    return _sparing(redis.Redis.from_url(text, **arguments), silences)


class _LeavesReplicas:
    """Mixed into redis-py's connections: the first write that a replica refuses ends the connection.

    A primary that becomes a replica keeps its clients. By then the host name of the URL (a hosted Redis' primary
    endpoint) or the Sentinels lead to the new primary, but only new connections ask them.
    """

    def read_response(self, *arguments: Any, **more: Any) -> Any:
        """Returns the answer. Raises ConnectionError instead of READONLY, without reading a pipeline's further
        answers."""
        try:
            answer = super().read_response(*arguments, **more)  # type: ignore[misc]  # redis-py's connection is behind it
        except exceptions.ResponseError as error:
            if not _is_read_only(error):
                raise
            self._leave(error)
        # Errors of a transaction's commands are in the list that answers EXEC.
        for one in answer[:_TRANSACTION_COMMANDS] if isinstance(answer, list) else ():
            if _is_read_only(one):
                self._leave(one)
        return answer

    def _leave(self, error: exceptions.ResponseError) -> NoReturn:
        self.disconnect()  # type: ignore[attr-defined]  # redis-py's connection is behind it
        raise exceptions.ConnectionError(f"{_host_of(self)} is not the primary any more") from error


def _is_read_only(answer: object) -> TypeGuard[exceptions.ResponseError]:
    """Returns True for READONLY, also in the text by which Redis 6 wraps the error of a command inside a script."""
    is_error = isinstance(answer, exceptions.ResponseError)
    return is_error and (isinstance(answer, exceptions.ReadOnlyError) or "-READONLY " in str(answer))


class _PlainConnection(_LeavesReplicas, Connection):
    """redis://."""


class _TlsConnection(_LeavesReplicas, SSLConnection):
    """rediss://."""


class _UnixConnection(_LeavesReplicas, UnixDomainSocketConnection):
    """unix://."""


class _SentinelConnection(_LeavesReplicas, SentinelManagedConnection):
    """redis+sentinel://."""


class _TlsSentinelConnection(_LeavesReplicas, SentinelManagedSSLConnection):
    """redis+sentinel:// with ssl=true."""


_CONNECTIONS = {"redis": _PlainConnection, "rediss": _TlsConnection, "unix": _UnixConnection}


def _host_of(connection: object) -> str:
    return getattr(connection, "host", "") or "this Redis"


class RedisSilences:
    """The silence of one server, or of each node of a cluster. Shared by threads.

    A server counts as away if it does not answer a new connection in time. Any other time-out only costs its
    connection.
    """

    def __init__(self, pauses: Backoff, clock: Clock, *, are_of_nodes: bool = False) -> None:
        """`are_of_nodes`: nodes of a cluster have silences; a single server has none, and is asked at every
        connection."""
        self._pauses, self._clock = pauses, clock
        self.are_of_nodes = are_of_nodes
        self._lock = threading.Lock()
        self._of: dict[str, Silence] = {}

    def of(self, node: str = "") -> Silence:
        """Returns the silence of the node; without a name, of the single server."""
        with self._lock:
            return self._of.setdefault(
                node,
                Silence(
                    misses=exceptions.TimeoutError,
                    answers=None,
                    refusal=exceptions.ConnectionError,
                    pauses=self._pauses,
                    clock=self._clock,
                ),
            )


class _Cluster(RedisCluster):
    """A client that spares silent nodes, and that starts although some node is silent.

    redis-py sends COMMAND only to the first primary.
    """

    def __init__(self, *, silences: RedisSilences | None, **arguments: Any) -> None:
        self._silences = silences
        super().__init__(**arguments)

    def get_redis_connection(self, node: ClusterNode) -> redis.Redis:
        """Returns the node's client."""
        return _sparing(super().get_redis_connection(node), self._silences, node.name)

    def command(self, **kwargs: Any) -> dict[str, dict[str, Any]]:
        """Returns the answer to COMMAND from the first primary that answers."""
        refused: Exception = exceptions.ConnectionError("the cluster has no primary")
        for node in self.get_primaries():  # type: ignore[no-untyped-call]  # redis-py has no annotation
            try:
                return self.get_redis_connection(node).command(**kwargs)
            except (exceptions.TimeoutError, exceptions.ConnectionError) as error:
                refused = error
        raise refused


def _sparing(client: redis.Redis, silences: RedisSilences | None, node: str = "") -> redis.Redis:
    pool: Any = client.connection_pool
    if silences is None or (silences.are_of_nodes and not node) or "get_connection" in vars(pool):
        return client
    get_connection, silence = pool.get_connection, silences.of(node)

    def get_if_it_answers(*arguments: Any, **more: Any) -> Any:
        with silence.asking():
            return get_connection(*arguments, **more)

    pool.get_connection = get_if_it_answers
    return client


def _sentinel(url: Url, arguments: dict[str, Any], options: dict[str, Any], login: ChangingLogin | None) -> redis.Redis:
    """`login`: a changing login at the Sentinels themselves; None if that login never changes."""
    service, _, database = url.path.strip("/").partition("/")
    if database:
        options["db"] = int(database)
    sentinel_options = {
        name.removeprefix("sentinel_"): options.pop(name) for name in SENTINEL_PARAMETERS if name in options
    }
    if login is not None:
        sentinel_options = {"credential_provider": login, "redis_connect_func": _Connecting(login, checks_role=False)}
    plain = {name: value for name, value in arguments.items() if name not in _OF_THE_SERVICE}
    if options.get("ssl"):
        sentinel_options |= {name: value for name, value in options.items() if name == "ssl" or name.startswith("ssl_")}
    # redis-py leaves these two without annotations.
    sentinel: Any = Sentinel(_hosts(url, SENTINEL_PORT_DEFAULT), sentinel_kwargs=plain | sentinel_options)  # type: ignore[no-untyped-call]
    connection = _TlsSentinelConnection if options.get("ssl") else _SentinelConnection
    client: redis.Redis = sentinel.master_for(service, **(arguments | options), connection_class=connection)
    return client


def _cluster(url: Url, arguments: dict[str, Any], silences: RedisSilences | None) -> RedisCluster:
    nodes = [ClusterNode(host, port) for host, port in _hosts(url, PORT_DEFAULT)]  # type: ignore[no-untyped-call]
    with translated_errors():
        # By default redis-py asks for the nodes again only after five errors of one pipeline. A round's pipeline never
        # has five, so without this step it would ask a primary that is gone for ever.
        return _Cluster(silences=silences, startup_nodes=nodes, reinitialize_steps=1, **arguments)


def _hosts(url: Url, default_port: int) -> list[tuple[str, int]]:
    return [(host.strip("[]"), port or default_port) for host, port in url.hosts]


def _options(text: str, url: Url) -> dict[str, Any]:
    """Returns user, password and parameters as redis-py reads them from a plain URL."""
    query = text.partition("?")[2]
    found = dict(parse_url(f"redis://{url.username or ''}:{url.password or ''}@localhost/?{query}"))  # type: ignore[no-untyped-call]
    found.pop("host", None)
    if "ssl" in found:
        found["ssl"] = is_over_tls(url)
    return found


class _Connecting:
    """Logs in, then asks for the ROLE, because a replica's data is old, and keys of its pending set would be judged
    twice.

    Shared by the connections of one pool: the flag changes only from True to False.
    """

    def __init__(self, login: ChangingLogin | None, *, checks_role: bool) -> None:
        self._login = login
        self._server_knows_role = checks_role

    def __call__(self, connection: Any) -> None:
        try:
            connection.on_connect()
        except exceptions.AuthenticationError:
            if self._login is None or not self._login.ask_again():
                raise
            connection.on_connect()  # on the same socket, because the server accepts another AUTH
        if not self._server_knows_role:
            return
        connection.send_command("ROLE")
        try:
            role = connection.read_response()
        except exceptions.ResponseError as error:
            # ROLE is not allowed or unknown; `checks.py` reports either.
            if "unknown command" in str(error).lower():
                # fakeredis' TCP server closes a connection after an error reply.
                self._server_knows_role = False
                connection.disconnect()
                connection.connect()
            return
        if role and role[0] not in (b"master", "master"):
            raise exceptions.ConnectionError(f"{_host_of(connection)} is not the primary")


class translated_errors:  # noqa: N801 - a generator would cost every command of a consumer a microsecond more
    """Turns redis-py's errors into ours and keeps them as causes. WatchError passes, because callers give it a
    meaning."""

    __slots__ = ()

    def __enter__(self) -> None:
        """Does nothing."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, _TRANSLATED) and not isinstance(error, exceptions.WatchError):
            raise translate(error) from error


@contextmanager
def patience(pipe: Any, seconds: float) -> Iterator[None]:
    """Makes a watching pipeline wait that long for each answer inside the block, instead of its client's time-out.

    So a server that hangs is noticed at the first short command, and the long command still has enough time.
    """
    # redis-py sets a time-out only for all connections of a client, and a second client is not wanted (client.py).
    strategy = getattr(pipe, "_execution_strategy", pipe)  # a cluster's pipeline
    connection = getattr(strategy, "_transaction_connection", None) or getattr(pipe, "connection", None)
    channel = getattr(connection, "_sock", None)
    if not isinstance(channel, socket.socket):  # not connected yet, or fakeredis
        yield
        return
    before = channel.gettimeout()
    channel.settimeout(seconds)
    try:
        yield
    finally:
        if channel.fileno() >= 0:  # otherwise the connection was lost and is closed
            channel.settimeout(before)


#: Patterns of TLS errors, each with its remedy; the first that fits counts. Connecting by TCP never fails with ENOENT
#: (2) or EACCES (13): these mean that a TLS file could not be read.
_TLS_REMEDIES = tuple(
    (re.compile(said), remedy)
    for said, remedy in (
        (
            "ismatch, certificate",
            "reach it under a name of its certificate, or set ssl_check_hostname=false in its URL",
        ),
        (
            "Key Identifier|include key usage",
            "Python 3.13 and newer demand that extension: have its authority issue a certificate that has it",
        ),
        (
            "certificate has expired|is not yet valid",
            "renew the certificate at the server, or correct the clock of this host",
        ),
        (
            "alert certificate expired",
            "renew the certificate of this client (ssl_certfile in its URL), or correct the clock of the server",
        ),
        (
            "alert certificate required",
            "the server takes clients with a certificate only: give ssl_certfile and ssl_keyfile in its URL",
        ),
        ("certificate verify failed", "give the certificate of its authority as ssl_ca_certs in its URL"),
        ("WRONG_VERSION_NUMBER", "the port does not speak TLS: correct its URL"),
        (
            r"Error (2|13) connecting to \S+:\d+\. |NO_CERTIFICATE_OR_CRL_FOUND|PEM lib|KEY_VALUES_MISMATCH",
            "a TLS file of its URL cannot be used: correct ssl_ca_certs, ssl_certfile or ssl_keyfile",
        ),
    )
)


#: Patterns of refused logins, each with its remedy; the first that fits counts. A refusal inside a script has no class.
_LOGIN_REMEDIES = tuple(
    (re.compile(said), remedy)
    for said, remedy in (
        ("invalid username-password|WRONGPASS|AUTH <password> called", "correct user and password in its URL"),
        ("DB index is out of range", "correct the number of the database at the end of its URL"),
        ("Authentication required|NOAUTH|client already authenticated", "put user and password into its URL"),
        (
            "no permissions to run the '?select",
            "correct the number at the end of its URL, or grant it to the user: `reconciler rights redis` prints it",
        ),
        (
            "NOPERM|no permissions to|can't run this command|can't access at least one",
            "grant it to the user: `reconciler rights redis` prints the line of each role",
        ),
    )
)


#: Texts of a server about its own state, each with its remedy. The first match counts. No login and no setting is at
#: fault, so such a text is no refusal of a permission.
_STATE_REMEDIES = tuple(
    (re.compile(said), remedy)
    for said, remedy in (
        ("when used memory|OOM command", "raise maxmemory of Redis"),
        ("MISCONF", "make room on the disk of Redis, or correct the rights of its folder"),
        ("LOADING|is loading the dataset", "wait until Redis has loaded its data"),
        ("READONLY|read only replica", "name the primary in redis.url"),
        ("NOREPLICAS|Not enough good replicas", "start the replicas of Redis, or lower its min-replicas-to-write"),
        ("max number of clients", "raise maxclients of Redis, or end clients of it"),
        (
            "CLUSTERDOWN|cluster is down|Hash slot not served",
            "start the nodes of the cluster that are down, or give their slots to others",
        ),
        ("MASTERDOWN|Link with MASTER is down", "name the primary in redis.url"),
        ("TRYAGAIN|during rehashing of slot", "wait until the cluster has moved the slot"),
        ("BUSY Redis is busy", "end the script that keeps Redis busy: SCRIPT KILL or FUNCTION KILL"),
    )
)


def is_of_state(error: Exception) -> bool:
    """Returns True if the server refuses because of its own state (full, loading, replica, busy), whoever asks.

    Newer servers name the user in a refusal of a permission, and the user may have the name of a state.
    """
    if isinstance(error, exceptions.NoPermissionError):
        return False
    return any(said.search(str(error)) for said, _ in _STATE_REMEDIES)


def translate(error: Exception) -> RedisAway | ConfigurationError | InvariantViolation:
    """Returns our error for a redis-py error. Redis 6 wraps errors inside a script, so their texts are searched.

    InvariantViolation: the data is damaged, as with WRONGTYPE or a counter that is no number. ConfigurationError: the
    server is too old for a command. RedisAway: any other error (away, loading, read-only, out of memory, no
    permission, slot moving). Such an error passes by itself or an operator ends it, and nothing is lost meanwhile.
    RedisUnasked: the error is of this process.
    """
    text = str(error)[:300]
    if isinstance(error, exceptions.DataError):
        return InvariantViolation(f"redis-py refused a value: {text}")
    if isinstance(error, exceptions.ResponseError) and not isinstance(error, exceptions.NoPermissionError):
        if "WRONGTYPE" in text or "Operation against a key holding the wrong kind" in text:
            return InvariantViolation(f"Redis key of a wrong type: {text}", cause="wrong-type")
        if "not an integer" in text or "not a valid float" in text:
            return InvariantViolation(f"Redis value that is no number: {text}", cause="no-number")
        if "unknown command" in text.lower():
            return ConfigurationError(f"Redis is older than 6.2 or renames commands: {text}")
    # The text names the error's class, because redis-py cuts off the server's error code if it has a class for the
    # code.
    told = f"{type(error).__name__}: {text}".removesuffix(": ")
    if own := lacking(error):
        return RedisUnasked(f"Redis was not asked: {told.rstrip('.')}", remedy=own)
    remedy = next(
        (remedy for said, remedy in (*_TLS_REMEDIES, *_LOGIN_REMEDIES, *_STATE_REMEDIES) if said.search(text)), ""
    )
    found = f"Redis: {told}"
    return RedisAway(found.rstrip(".") if remedy else found, remedy=remedy)

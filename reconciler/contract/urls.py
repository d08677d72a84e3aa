"""URLs of databases, Redis and mail servers. Only this module reads them, and decides which parts are shown.

Only the parts that name the service are shown: scheme, hosts, database. So the code needs no list of secret parts. If
two drivers could read a text in two ways, the text is refused, because a piece of a password could be taken for a host.
No error of this module repeats a piece of the text, except the name of a parameter.

    scheme[+driver]://[user[:password]@][host[:port][,host[:port]]][/path][?name=value[&name=value]]
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote

from reconciler.contract.named_files import why_no_file
from reconciler.contract.secret import Secret, SecretText

HIDDEN = "(hidden)"
#: Longer texts are cut when they are shown.
SHOWN_CHARACTERS_MAX = 120
#: Shorter secrets stay in a shown text, because their removal would also remove equal letters elsewhere.
BLOTTED_CHARACTERS_MIN = 4
#: The longest host name (RFC 1035, 2.3.4).
HOST_CHARACTERS_MAX = 253
LABEL_CHARACTERS_MAX = 63

_PERCENT = "percent-encode special characters of user and password: @ is %40, / %2F, # %23, ? %3F, % %25"
_URL = re.compile(
    r"(?P<scheme>[a-z][a-z0-9]*(?:\+[a-z][a-z0-9_]*)*)://"
    r"(?:(?P<user>[^:/?#@\[\]]*)(?::(?P<password>[^/?#@\[\]]*))?@)?"
    r"(?P<hosts>[^/?#@]*)(?P<path>/[^?]*)?(?:\?(?P<query>.*))?"
)
_ADDRESS = re.compile(
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?)(?::(?P<port>[0-9]{1,5}))?"
)
_NAME = re.compile(r"[a-z][a-z_]{1,39}")
#: Parameters with the place of the server. _PLACE matches the values that can be a place.
_WHERE = frozenset({"host", "port", "hostaddr", "dbname", "service", "unix_socket", "db"})
_PLACE = re.compile(r"[A-Za-z0-9_./:,\[\]-]{1,200}")


@dataclass(frozen=True, slots=True, repr=False)
class Url:
    """A URL that was read. Its text leaves secrets out."""

    scheme: str
    #: The text after the + of the scheme.
    driver: str
    username: str | None
    password: str | None
    #: Each host, with its port if the URL has one.
    hosts: tuple[tuple[str, int | None], ...]
    #: The path as written, with its slash.
    path: str
    parameters: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        hosts = ",".join(host if port is None else f"{host}:{port}" for host, port in self.hosts)
        where = "&".join(f"{name}={value}" for name, value in self.parameters if _tells_where(name, value))
        return f"{self.scheme}://{hosts}{self.path}{'?' if where else ''}{where}"

    def __repr__(self) -> str:
        return f"<{self}>"

    def blot(self, text: str) -> str:
        """Returns a driver's words without the secrets of this URL. A secret stays if it equals a shown part."""
        shown = f"{self} {self.username or ''}"
        hidden = [self.password or "", unquote(self.password or "")]
        hidden += [value for name, value in self.parameters if not _tells_where(name, value)]
        for value in hidden:
            if len(value) >= BLOTTED_CHARACTERS_MIN and value not in shown:
                text = text.replace(value, "***")
        return text


def _tells_where(name: str, value: str) -> bool:
    return name in _WHERE and _PLACE.fullmatch(value) is not None


def read_url(text: Secret) -> Url:
    """Returns the parts of a URL of any scheme. Raises ValueError with a remedy that repeats nothing of the text."""
    if isinstance(text, SecretText):
        text = text.reveal()
    if not isinstance(text, str):
        raise ValueError(f"expected the text of a URL, not {type(text).__name__}")  # noqa: TRY004 - as any wrong text
    found = _URL.fullmatch(text)
    if found is None or not text.isprintable():
        raise ValueError(f"expected scheme://user:password@host:port/database; {_PERCENT}")
    hosts, path, query = found["hosts"], found["path"] or "", found["query"] or ""
    has_authority = bool(hosts) or found["user"] is not None
    is_file = found["scheme"].startswith("sqlite") and not has_authority
    if (has_authority and "@" in path + query) or ("#" in path + query and not is_file):
        raise ValueError(_PERCENT)
    scheme, _, driver = found["scheme"].partition("+")
    if scheme == "redis" and driver:
        scheme, driver = found["scheme"], ""
    return Url(
        scheme=scheme,
        driver=driver,
        username=found["user"],
        password=found["password"],
        hosts=tuple(read_address(host) for host in hosts.split(",")) if hosts else (),
        path=path,
        parameters=tuple(parse_qsl(query, keep_blank_values=True)),
    )


def read_address(text: str) -> tuple[str, int | None]:
    """Returns host and port. Raises ValueError."""
    found = _ADDRESS.fullmatch(text)
    if found is None or not _can_be_resolved(found["host"]):
        raise ValueError(f"a host is malformed, or a port is no number; {_PERCENT}")
    port = None if found["port"] is None else int(found["port"])
    if port is not None and not 0 < port < 65_536:
        raise ValueError("a port is not between 1 and 65535")
    return found["host"], port


def address_of(host: str, port: int) -> str:
    """Returns the address as settings take it: "host:port", or "[host]:port" for IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _can_be_resolved(host: str) -> bool:
    """Returns False for names that are too long or have an empty part. For such names Python's resolver raises
    UnicodeError."""
    return len(host) <= HOST_CHARACTERS_MAX and all(0 < len(p) <= LABEL_CHARACTERS_MAX for p in host.split("."))


def shown_url(text: object) -> str:
    """Returns the parts of a URL that may be shown, even if the URL is invalid."""
    try:
        return str(read_url(text))  # type: ignore[arg-type]  # it refuses what is no text
    except ValueError:
        return HIDDEN


def holds_password(text: Secret) -> bool:
    """Returns True if a URL that can be read holds a secret."""
    try:
        url = read_url(text)
    except ValueError:
        return False
    return bool(url.password) or any("password" in name for name, _ in url.parameters)


def blotted(words: str, url: Secret) -> str:
    """Returns a driver's words without the secrets of the URL, as far as the URL can be read."""
    try:
        return read_url(url).blot(words)
    except ValueError:
        return words


def shown_value(value: object) -> str:
    """Returns a text for a value of the wrong kind, and hides what may be a password in a URL."""
    text = str(value)
    if "://" in text:
        return shown_url(text)
    return HIDDEN if "@" in text else repr(value)[:SHOWN_CHARACTERS_MAX]


# ----------------------------------------------------------------- databases

#: Backend -> the driver that we use, its package, and the extra that installs it.
DATABASE_DRIVERS: Mapping[str, tuple[str, str, str]] = {
    "sqlite": ("pysqlite", "sqlite3", ""),
    "postgresql": ("psycopg", "psycopg", "postgres"),
    "mysql": ("pymysql", "pymysql", "mysql"),
    "mariadb": ("pymysql", "pymysql", "mysql"),
}
#: Drivers that a service may name in a URL that it shares with us. We reach the database by our own driver.
_OTHER_DRIVERS = {
    "sqlite": frozenset({""}),
    "postgresql": frozenset({"", "psycopg2", "psycopg2cffi", "pg8000"}),
    "mysql": frozenset({"", "mysqldb", "mysqlconnector"}),
    "mariadb": frozenset({"", "mysqldb", "mysqlconnector"}),
}
_ASYNC_DRIVERS = frozenset({"asyncpg", "psycopg_async", "aiomysql", "asyncmy", "aiosqlite"})
_FLAG, _NUMBER, _ANY = r"(?i:true|false|yes|no|on|off|1|0)", r"[0-9]{1,9}", r".+"
_PORTS = r"[0-9]{1,5}(,[0-9]{1,5})*"


def _any(names: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), _ANY)


#: Parameters of libpq 18. Password and dbname are left out, because a URL has places of their own for them. Parameters
#: for replication are left out, too.
_POSTGRESQL = {
    "sslmode": r"disable|allow|prefer|require|verify-ca|verify-full",
    "connect_timeout": _NUMBER,
    "port": _PORTS,
    "target_session_attrs": r"any|read-write|read-only|primary|standby|prefer-standby",
    "load_balance_hosts": r"disable|random",
    "channel_binding": r"disable|prefer|require",
    "gssencmode": r"disable|prefer|require",
    "sslnegotiation": r"postgres|direct",
    "sslcertmode": r"disable|allow|require",
    "keepalives": _NUMBER,
    "keepalives_idle": _NUMBER,
    "keepalives_interval": _NUMBER,
    "keepalives_count": _NUMBER,
    "tcp_user_timeout": _NUMBER,
} | _any(
    "host hostaddr user service passfile client_encoding options application_name fallback_application_name "
    "sslcompression sslcert sslkey sslpassword sslrootcert sslcrl sslcrldir sslsni requirepeer require_auth "
    "ssl_min_protocol_version ssl_max_protocol_version min_protocol_version max_protocol_version krbsrvname gsslib "
    "gssdelegation"
)
#: Parameters that SQLAlchemy gives to PyMySQL in the right type. local_infile is left out, because a server could then
#: ask for any file.
_MYSQL = {
    "connect_timeout": _NUMBER,
    "read_timeout": _NUMBER,
    "write_timeout": _NUMBER,
    "client_flag": _NUMBER,
    "use_unicode": _FLAG,
    "ssl_check_hostname": _FLAG,
    "charset": r"[a-z0-9_]+",
    "collation": r"[a-z0-9_]+",
} | _any(
    "user unix_socket bind_address sql_mode program_name read_default_file read_default_group ssl_ca ssl_capath "
    "ssl_cert ssl_key ssl_cipher"
)
_SQLITE = {
    "uri": _FLAG,
    "mode": r"ro|rw|rwc|memory",
    "cache": r"shared|private",
    "immutable": _FLAG,
    "nolock": _FLAG,
    "psow": _FLAG,
    "vfs": r"[a-z0-9_-]+",
}
_DATABASE_PARAMETERS = {"sqlite": _SQLITE, "postgresql": _POSTGRESQL, "mysql": _MYSQL, "mariadb": _MYSQL}


def read_database_url(text: Secret) -> Url:
    """Returns the parts of a database URL that can be opened. Raises ValueError with a remedy, which repeats nothing
    secret."""
    url = read_url(text)
    if url.scheme not in DATABASE_DRIVERS:
        raise ValueError(f"expected a SQLAlchemy URL of {', '.join(DATABASE_DRIVERS)}")
    ours = DATABASE_DRIVERS[url.scheme][0]
    if url.driver in _ASYNC_DRIVERS:
        raise ValueError(f"the driver {url.driver} is asynchronous; write {url.scheme}://, which is reached by {ours}")
    if url.driver != ours and url.driver not in _OTHER_DRIVERS[url.scheme]:
        raise ValueError(f"unknown driver; write {url.scheme}://, which is reached by {ours}")
    if any(name in ("password", "passwd") for name, _ in url.parameters):
        raise ValueError(f"put the password before the host: {url.scheme}://user:password@host/database")
    _require_parameters(url, _DATABASE_PARAMETERS[url.scheme])
    if url.scheme == "sqlite":
        _require_file(url)
    elif len(url.hosts) > 1:
        raise ValueError("one host before the database; PostgreSQL takes several as ?host=a:5432&host=b:5432")
    elif not url.path.strip("/"):
        raise ValueError(f"the URL names no database: {url.scheme}://user:password@host:port/database")
    return url


def _require_file(url: Url) -> None:
    if url.hosts or url.username is not None:
        raise ValueError("expected sqlite:////absolute/path: a file has no host, user or password")
    if not url.path.strip("/") or ":memory:" in url.path or ("mode", "memory") in url.parameters:
        raise ValueError("expected sqlite:////absolute/path: a database in memory cannot be shared by processes")
    if kind := why_no_file(url.path[1:]):
        raise ValueError(f"its path: {kind}; name the file of the database")


# ----------------------------------------------------------------- Redis

_TLS = {
    "ssl_cert_reqs": r"none|optional|required",
    "ssl_check_hostname": _FLAG,
    "ssl_min_version": _NUMBER,
} | _any("ssl_ca_certs ssl_ca_path ssl_ca_data ssl_certfile ssl_keyfile ssl_password ssl_ciphers")
_LOGIN = {"username": _ANY, "password": _ANY, "client_name": _ANY}
_DB = {"db": r"[0-9]{1,5}"}
_SENTINEL = {"sentinel_username": _ANY, "sentinel_password": _ANY}
_REDIS_PARAMETERS = {
    "redis": _LOGIN | _DB,
    "rediss": _LOGIN | _DB | _TLS,
    "unix": _LOGIN | _DB,
    "redis+sentinel": _LOGIN | _DB | _SENTINEL | {"ssl": _FLAG} | _TLS,
    "redis+cluster": _LOGIN | {"ssl": _FLAG} | _TLS,
}
REDIS_SCHEMES = tuple(_REDIS_PARAMETERS)
#: Parameters of database and Redis URLs whose values are files. Drivers read these files for each connection.
_FILES = frozenset(
    _any(
        "sslcert sslkey sslrootcert sslcrl passfile ssl_ca ssl_cert ssl_key read_default_file "
        "ssl_ca_certs ssl_certfile ssl_keyfile"
    )
)
#: A value of sslrootcert: the authorities of the operating system (libpq).
_NOT_A_FILE = "system"
_REDIS_PATHS = {
    "redis": (r"(/[0-9]{0,5})?", "expected the number of a database behind the host: redis://host:6379/0"),
    "rediss": (r"(/[0-9]{0,5})?", "expected the number of a database behind the host: rediss://host:6379/0"),
    "unix": (r"/.+", "expected unix:///path/of/the/socket"),
    "redis+sentinel": (
        r"/[A-Za-z0-9_.-]+(/[0-9]{0,5})?",
        "expected redis+sentinel://host:port,host:port/name-of-the-service, and /number of the database",
    ),
    "redis+cluster": (r"(/0?)?", "a cluster has the database 0 only"),
}


def read_redis_url(text: Secret) -> Url:
    """Returns the parts of a Redis URL that can be opened. Raises ValueError with a remedy, which repeats nothing
    secret."""
    url = read_url(text)
    has_place = url.scheme == "unix" or bool(url.hosts)
    if url.scheme not in REDIS_SCHEMES or url.driver or not has_place:
        raise ValueError(f"expected a URL that begins with {', '.join(s + '://' for s in REDIS_SCHEMES)} and a host")
    pattern, remedy = _REDIS_PATHS[url.scheme]
    if not re.fullmatch(pattern, url.path) or (url.scheme == "unix" and url.hosts):
        raise ValueError(remedy)
    if len(url.hosts) > 1 and url.scheme in ("redis", "rediss"):
        raise ValueError("several hosts are redis+sentinel:// or redis+cluster://")
    _require_parameters(url, _REDIS_PARAMETERS[url.scheme])
    if url.scheme != "rediss" and not is_over_tls(url) and any(name in _TLS for name, _ in url.parameters):
        raise ValueError("parameters of TLS need ssl=true among them")
    return url


def is_over_tls(url: Url) -> bool:
    """Returns True if the URL of Sentinels or of a cluster asks for TLS."""
    return dict(url.parameters).get("ssl", "").lower() in {"1", "true", "yes", "on"}


def _require_parameters(url: Url, known: Mapping[str, str]) -> None:
    for name, value in url.parameters:
        if name not in known:
            shown = repr(name) if _NAME.fullmatch(name) else HIDDEN
            raise ValueError(f"unknown parameter {shown} behind the ?; remove it or correct its spelling")
        if not re.fullmatch(known[name], value):
            expected = "not empty" if known[name] == _ANY else f"one that fits {known[name]}"
            raise ValueError(f"the parameter {name} has a wrong value; expected {expected}")
        if name in _FILES and value != _NOT_A_FILE and (kind := why_no_file(value)):
            raise ValueError(f"{name} = {value!r}: {kind}; name a file")


# ----------------------------------------------------------------- mail


def read_mail_url(text: Secret) -> Url:
    """Returns the parts of a URL smtp:// (STARTTLS) or smtps:// (TLS from the start) with a host. Raises ValueError
    with a remedy, which repeats nothing secret."""
    url = read_url(text)
    if url.scheme not in ("smtp", "smtps") or url.driver or len(url.hosts) != 1:
        raise ValueError("expected smtp://user:password@host:587 or smtps://user:password@host:465")
    if url.path.strip("/") or url.parameters:
        raise ValueError("nothing stands behind the host and the port of a mail server")
    if (url.username is None) != (url.password is None):
        raise ValueError("has a user without a password; give both, or neither")
    if not unquote(f"{url.username}{url.password}").isascii():
        raise ValueError("user and password of SMTP have to be ASCII")
    return url

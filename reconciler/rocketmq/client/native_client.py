"""What producers and consumers on rocketmq-client-python share, such as loading the library, deadlines and callbacks.

librocketmq crashes where other clients raise. The facts of this file come from the sources of the package (0.4.4 and
2.0.0) and of librocketmq (1.2.3 and 2.2.0). The facts were seen with the wheel 0.4.4 and with librocketmq 2.2.0 on a
real broker 5.3.3. The package is imported only inside functions, so that no other use of the client loads it.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import os
import signal
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from reconciler.clock import Clock, SystemClock
from reconciler.errors import (
    BrokerUnavailable,
    ConfigurationError,
    InvalidValue,
    MissingDependency,
    ReconcilerError,
    RequestTimeout,
    UsageError,
)
from reconciler.rocketmq.wire.acl import AclCredentials
from reconciler.rocketmq.wire.address import parse_addresses

logger = logging.getLogger(__name__)

T = TypeVar("T")

START_TIMEOUT_SECONDS = 15.0
#: A consumer drains its cache before it leaves.
SHUTDOWN_TIMEOUT_SECONDS = 30.0
#: After a shutdown that hung, the library's destructors may hang, too. A process that exits is then ended after this
#: time.
EXIT_SECONDS = 5

_INSTALL = (
    "install the extra native (docs/how-to/install.md#extras) and librocketmq 2.x, the package of Apache "
    "RocketMQ's C++ client (rocketmq-client-cpp 2.x), which no Python registry carries"
)
_numbers = itertools.count(1)
#: All created objects, which are kept until the process ends. The library would go on using freed objects.
_ever_made: list[NativeObject] = []
_callback = threading.local()


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeLibrary:
    """The installed package: rocketmq-client-python (2.0.0), or the older wheel rocketmq (0.4.4)."""

    client: Any
    ffi: Any
    exceptions: Any

    @property
    def has_transactions(self) -> bool:
        """True if the installed package can send transactional messages. The published wheel cannot."""
        return hasattr(self.client, "TransactionMQProducer")

    def received(self, pointer: int) -> Any:
        """Returns the package's view of a received message. The view is valid until the callback returns."""
        kind = getattr(self.client, "ReceivedMessage", None) or self.client.RecvMessage
        return kind(pointer)

    def set_name_servers(self, made: Any, name_servers: str) -> None:
        """Calls set_name_server_address, which 0.4.4 names set_namesrv_addr."""
        (getattr(made, "set_name_server_address", None) or made.set_namesrv_addr)(name_servers)

    def set_credentials(self, made: Any, acl: AclCredentials | None) -> None:
        """Sets the keys of a producer or consumer before the start. The library cannot change the keys later.

        Raises MissingDependency if the package cannot sign. Raises UsageError for keys with a security token.
        """
        if acl is None:
            return
        if acl.security_token is not None:
            raise UsageError("librocketmq takes no security token: use open_producer or TransactionalConsumer")
        take = getattr(made, "set_session_credentials", None)
        if take is None:
            raise MissingDependency(f"this rocketmq-client-python signs no requests: {_INSTALL}")
        # The third argument is the channel of Alibaba's cloud. The package would set "ALIYUN" by default.
        take(acl.access_key, acl.current_secret_key(), "")


def load_library(*, transactions: bool) -> NativeLibrary:
    """Imports the package. Raises MissingDependency, whose text says what to install."""
    try:
        client, ffi, exceptions = (import_module(f"rocketmq.{name}") for name in ("client", "ffi", "exceptions"))
    except ModuleNotFoundError as error:
        if error.name == "rocketmq":
            raise MissingDependency(f"rocketmq-client-python is not installed: {_INSTALL}") from error
        raise MissingDependency(
            "the module rocketmq belongs to another package (rocketmq-python-client installs the same folder): give "
            f"each an environment of its own, here {_INSTALL}"
        ) from error
    except (ImportError, OSError, AttributeError, NotImplementedError) as error:
        # ImportError means that no library was found. AttributeError means that the library lacks the functions of 2.x.
        raise MissingDependency(f"rocketmq-client-python cannot load librocketmq ({error}): {_INSTALL}") from error
    library = NativeLibrary(client=client, ffi=ffi, exceptions=exceptions)
    if transactions and not library.has_transactions:
        raise MissingDependency(f"the wheel rocketmq 0.4.4 has no transactions: uninstall it and {_INSTALL}")
    return library


def require_writable_home() -> None:
    """Raises ConfigurationError if the library could not write its log. The library would not start."""
    folder = Path(os.environ.get("HOME") or "/") / "logs" / "rocketmq-cpp"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"librocketmq logs to {folder}, which cannot be made: set HOME ({error})") from error
    if not os.access(folder, os.W_OK):
        raise ConfigurationError(f"librocketmq logs to {folder}, which is not writable: set HOME")


def new_instance_name(group: str, name_servers: str) -> str:
    """Returns a new name for each producer or consumer. With the library's default name, a second cluster would get the
    connections of the first cluster.

    Raises InvalidValue for malformed name servers.
    """
    parse_addresses(name_servers)
    return f"reconciler-{group}-{zlib.crc32(name_servers.encode()):08x}-{os.getpid()}-{next(_numbers)}"


def call_within(timeout_seconds: float, what: str, call: Callable[[], T], *, clock: Clock | None = None) -> T:
    """Runs a call of the library on a thread of its own. The library blocks up to a minute, even with a shorter
    time-out.

    Raises RequestTimeout if the time is over, but the thread continues. Raises the error of the call if the call
    raised.
    """
    returned, results, failures = threading.Event(), list[T](), list[BaseException]()

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001  # raised again by the caller
            failures.append(error)
        finally:
            returned.set()

    threading.Thread(target=run, name=f"librocketmq-{what}", daemon=True).start()
    if not (clock or SystemClock()).wait(returned, timeout_seconds):
        raise RequestTimeout(f"librocketmq did not return from {what} within {timeout_seconds} s")
    if failures:
        raise failures[0]
    return results[0]


def answered(call: Callable[[], T], *, otherwise: T, keep: Callable[[BaseException], None]) -> T:
    """Runs the body of a callback. If the body raises, passes the exception to `keep` and returns `otherwise`.

    A callback that raises returns an undefined value to C. The value may be 0, which means COMMIT and CONSUME_SUCCESS.
    """
    try:
        with inside_callback():
            return call()
    except BaseException as error:  # noqa: BLE001  # KeyboardInterrupt and SystemExit too: nothing may reach C
        with suppress(BaseException):
            keep(error)
        return otherwise


@contextmanager
def inside_callback() -> Iterator[None]:
    """Surrounds code that the library waits for. This code must not shut the library down."""
    _callback.depth = getattr(_callback, "depth", 0) + 1
    try:
        yield
    finally:
        _callback.depth -= 1


def translated(error: Exception, what: str) -> ReconcilerError:
    """Returns the error of this project for an exception of the package (RocketMQException)."""
    return (
        error if isinstance(error, ReconcilerError) else BrokerUnavailable(f"{what}: {error or type(error).__name__}")
    )


class NativeObject:
    """A producer or consumer of the package. The object is started once and shut down once. Afterwards it is neither
    used nor freed.

    Threads may share this object, because a lock protects it. Create and start the object in the same process, because
    threads of the library do not survive a fork.
    """

    def __init__(
        self,
        made: Any,
        what: str,
        *,
        start_timeout_seconds: float = START_TIMEOUT_SECONDS,
        shutdown_timeout_seconds: float = SHUTDOWN_TIMEOUT_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        """`made` is a configured Producer or PushConsumer of the package, which is not started yet."""
        self.what = what
        self._made = made
        self._state = "new"
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._calls = 0
        self._idle = threading.Event()
        self._idle.set()
        self._clock = clock or SystemClock()
        self._start_timeout_seconds = start_timeout_seconds
        self._shutdown_timeout_seconds = shutdown_timeout_seconds
        _ever_made.append(self)

    @contextmanager
    def used(self) -> Iterator[Any]:
        """Yields the package's object for one call into C. A shutdown waits for the end of the call.

        Raises UsageError if the object was made by another process, or does not run. Otherwise the call would end in a
        segmentation fault.
        """
        with self._lock:
            if self._pid != os.getpid():
                raise UsageError(f"{self.what} was made before a fork: make another one in this process")
            if self._state != "running":
                raise UsageError(f"{self.what} is {self._state}, not running: start it once, and never again")
            self._calls += 1
            self._idle.clear()
        try:
            yield self._made
        finally:
            with self._lock:
                self._calls -= 1
                if not self._calls:
                    self._idle.set()

    @property
    def is_stuck(self) -> bool:
        """True if the library did not return from its start or shutdown."""
        return self._state == "stuck"

    def start(self) -> None:
        """Starts the object. Raises UsageError for a second start, and can raise RequestTimeout or
        BrokerUnavailable."""
        with self._lock:
            if self._state != "new" or self._pid != os.getpid():
                raise UsageError(f"{self.what} cannot be started (it is {self._state}, made by process {self._pid})")
            self._state = "starting"
        try:
            call_within(self._start_timeout_seconds, f"start of {self.what}", self._made.start, clock=self._clock)
        except RequestTimeout:
            self._give_up("its start hangs")
            raise
        except Exception as error:
            self._state = "failed"
            raise translated(error, f"start of {self.what}") from error
        self._state = "running"

    def shutdown(self) -> bool:
        """Leaves the group. Returns False if the library did not return in time. A second call does nothing.

        The call waits on the caller's thread, which should be the main thread, so that signals still arrive. The
        library's shutdown runs on another thread with a deadline. Raises UsageError inside a callback, where the
        library refuses a shutdown.
        """
        if getattr(_callback, "depth", 0):
            raise UsageError(f"{self.what} cannot be shut down by one of its own callbacks")
        with self._lock:
            if self._state != "running" or self._pid != os.getpid():
                return self._state != "stuck"
            self._state = "closing"
        if threading.current_thread() is not threading.main_thread():
            logger.warning(
                "shutdown_on_wrong_thread: %s is shut down by %s: do it on the main thread",
                self.what,
                threading.current_thread().name,
            )
        deadline = self._clock.monotonic_seconds() + self._shutdown_timeout_seconds
        if not self._clock.wait(self._idle, self._shutdown_timeout_seconds):
            self._give_up("calls hang in it")  # shut down during a call, it would crash
            return False
        left = deadline - self._clock.monotonic_seconds()
        try:
            call_within(left, f"shutdown of {self.what}", self._made.shutdown, clock=self._clock)
        except RequestTimeout:
            self._give_up("its shutdown hangs")
            return False
        except Exception as error:  # noqa: BLE001  # it will not get better
            logger.warning("shutdown_failed: shutdown of %s failed: %s", self.what, error)
        self._state = "closed"
        # Without this line, 0.4.4 would shut the object down and free it again at garbage collection. A late call now
        # gets a null pointer.
        self._made._handle = None  # noqa: SLF001  # the package has no other way
        return True

    def leave_at_exit(self) -> None:
        """Shuts the object down at exit if that was forgotten. An exit without shutdown lets the library hang or abort,
        and so does freeing the object."""
        if self._state == "running" and self._pid == os.getpid():
            logger.warning("shutdown_forgotten: %s was not shut down: it is now", self.what)
            _end_process_in(int(self._shutdown_timeout_seconds) + 1)
            with suppress(Exception):
                self._made.shutdown()
            _end_process_in(0)
            self._state = "closed"
        self._made._handle = None  # noqa: SLF001  # the package has no other way

    def _give_up(self, why: str) -> None:
        self._state = "stuck"
        logger.error(
            "shutdown_hangs: %s: %s; the process ends at most %d s after its last statement",
            self.what,
            why,
            EXIT_SECONDS,
        )


def _leave() -> None:
    for made in reversed(_ever_made):
        made.leave_at_exit()
    if any(made.is_stuck for made in _ever_made):
        _end_process_in(EXIT_SECONDS)


atexit.register(_leave)


def _end_process_in(seconds: int) -> None:
    # The signal's default action also ends a process that hangs in the library's destructors. With 0 seconds, the alarm
    # is cancelled.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(seconds)


def check_group(group: str) -> str:
    """Returns the group itself. Raises InvalidValue for a name that C cannot take safely."""
    if not isinstance(group, str) or not group.isascii() or not group.replace("-", "a").replace("_", "a").isalnum():
        raise InvalidValue("group", group, "ASCII letters, digits, _ and -")
    return group

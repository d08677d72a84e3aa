"""Wiring of the history. The history and pyarrow are loaded only if the setting history.path exists."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ulid import ULID

from reconciler.clock import Clock
from reconciler.contract.extras import install
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.unique_key import member_of
from reconciler.errors import MissingDependency
from reconciler.history.sink import HistorySink
from reconciler.policy.ports.announcing import AnnouncementQueue
from reconciler.settings.schema import Settings

if TYPE_CHECKING:
    from reconciler.history.reader import HistoryOverview, HistoryReader
    from reconciler.history.service import HistoryService
    from reconciler.wiring.rounds import RoundAssembly


def history_sink(settings: Settings, clock: Clock) -> HistorySink | None:
    """Makes the sink for events of the history. None: no history is configured. Raises MissingDependency."""
    if settings.history.path is None:
        return None
    require_pyarrow()
    return HistorySink(clock=clock)


def require_pyarrow() -> None:
    """Raises MissingDependency if pyarrow is not installed."""
    try:
        import pyarrow  # loads slowly, and only the history needs it
    except ImportError as error:
        raise MissingDependency(
            "history.path is set, and pyarrow, which writes the history, is not installed: "
            f"{install('daemon')}, or remove history.path"
        ) from error
    if "pandas" not in sys.modules:
        _look_for_no_pandas(pyarrow)


def _look_for_no_pandas(pyarrow: Any) -> None:
    """Makes pyarrow's first array while pandas cannot be found. This saves 45 MiB.

    For its first array, pyarrow loads pandas to recognise a pandas series. The history has no pandas series, and
    pyarrow tries to load pandas only once.
    """
    finder = _WithoutPandas()
    sys.meta_path.insert(0, finder)
    try:
        pyarrow.array([0])
    finally:
        sys.meta_path.remove(finder)


class _WithoutPandas(MetaPathFinder):
    def find_spec(self, fullname: str, *_of: object) -> None:
        """Raises ModuleNotFoundError for pandas. All other modules are found as usual."""
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is of no use to the history", name=fullname)


@contextmanager
def writing_history(
    recorded: RoundAssembly, *, sink: HistorySink | None, clock: Clock
) -> Iterator[HistoryService | None]:
    """Runs the history's threads within the block. At the end of the block, the rows that are left are sealed."""
    if sink is None:
        yield None
        return
    service = _service_of(recorded, sink=sink, clock=clock)
    service.start()
    try:
        yield service
    finally:
        service.close()


def _service_of(recorded: RoundAssembly, *, sink: HistorySink, clock: Clock) -> HistoryService:
    """Makes threads, spool, chain and store from the settings. No thread is started, and no folder is touched."""
    from reconciler.history.chain import ManifestChain
    from reconciler.history.health import Counters
    from reconciler.history.maintenance import HistoryMaintenance, MaintenanceRules
    from reconciler.history.positions import PositionsReader
    from reconciler.history.recorder import HistoryRecorder, SpoolPlace
    from reconciler.history.service import HistoryService
    from reconciler.history.store import HistoryStore
    from reconciler.shards.round_capture import RedisRoundCapture

    settings, plans = recorded.settings, recorded.plans
    history = settings.history
    root, spool = history_folders(settings)
    writer, counters = writer_name(), Counters()
    shards = [shard for topic in plans for plan in topic.subscriptions for shard in topic.shards_of(plan.subscription)]
    store = HistoryStore(root, settings.environment)
    chain = ManifestChain(root, settings.environment, writer=writer, clock=clock)
    maintenance = HistoryMaintenance(
        store,
        chain,
        rules=MaintenanceRules(
            seal_seconds=history.seal_seconds, compact_files=history.compact_files, keep_days=history.keep_days
        ),
        spool_folder=spool,
        counters=counters,
        clock=clock,
    )
    recorder = HistoryRecorder(
        shards=shards,
        port=RedisRoundCapture(recorded.redis),
        sink=sink,
        place=SpoolPlace(folder=spool, writer=writer, size_bytes_max=history.spool_max_mebibytes * 1024 * 1024),
        read_positions=PositionsReader(
            store, chain, spool=spool, shards=shards, maintenance=maintenance, last_stored=recorded.ledger.rounds.last
        ),
        counters=counters,
        clock=clock,
        floors=partial(_floors, recorded),
    )
    return HistoryService(
        sink=sink,
        recorder=recorder,
        maintenance=maintenance,
        counters=counters,
        clock=clock,
        seal_seconds=history.seal_seconds,
    )


def _floors(recorded: RoundAssembly, shard: Shard, queues: Iterable[str]) -> Mapping[str, int] | None:
    """Returns queue -> the offset from which announcements are read again after Redis lost its memory.

    None: the subscription has no inbox, so nothing shows which keys of the lost rounds were consumed. Raises
    DatabaseAway.
    """
    subscription = shard.subscription
    if not recorded.witnesses.inbox.is_configured(subscription):
        return None
    topic = recorded.settings.unique_key_topic.name_for(subscription.topic)
    found: dict[str, int] = {}
    for name in queues:
        broker, _, number = name.rpartition("/")
        queue = AnnouncementQueue(unique_key_topic=topic, broker=broker, queue_id=int(number))
        floor = recorded.ledger.announcements.floor(subscription, queue)
        found[name] = 0 if floor is None else floor.queue_offset
    return found


def open_reader(settings: Settings) -> HistoryReader | None:
    """Makes the reader of the history. None: no history is configured. Raises MissingDependency."""
    if settings.history.path is None:
        return None
    require_pyarrow()
    from reconciler.history.reader import HistoryReader

    return HistoryReader(history_folders(settings)[0], settings.environment)


def rows_of_key(settings: Settings, unique_key: str) -> tuple[Sequence[tuple[str, Mapping[str, Any]]], Sequence[str]]:
    """Returns the history's rows about a key, and the reasons why rows may be missing."""
    try:
        reader = open_reader(settings)
        if reader is None:
            return (), ()
        found = reader.rows_of(member_of(unique_key))
    except (OSError, MissingDependency) as error:
        return (), (str(error),)
    return found.rows, found.problems


def read_overview(
    settings: Settings, subscriptions: Sequence[Subscription]
) -> tuple[HistoryOverview | None, str | None]:
    """Returns the history's progress, and the reason if it is unknown. (None, None): no history is configured."""
    try:
        reader = open_reader(settings)
        if reader is None:
            return None, None
        return reader.overview(subscriptions, spool=history_folders(settings)[1]), None
    except (OSError, MissingDependency) as error:
        return None, str(error)


def sees_history(settings: Settings) -> bool:
    """Returns False if the history's folder is not here, or if this login may not read it.

    The console may run on another machine than `run`, and with another login.
    """
    if settings.history.path is None:
        return False
    try:
        os.listdir(settings.history.path)
    except OSError as error:
        return not isinstance(error, (FileNotFoundError, PermissionError))
    return True


def history_folders(settings: Settings) -> tuple[Path, Path]:
    """Returns the folders of the history and of its spool.

    Each environment has its own spool, because the service of another environment must not take its rows.
    """
    history = settings.history
    root = Path(history.path or "")
    top = Path(history.spool_path) if history.spool_path is not None else root / ".spool"
    return root, top / f"environment={settings.environment}"


def writer_name() -> str:
    """Returns a unique name of the writing process, for people and for file names."""
    host = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())[:40]
    return f"{host}-{os.getpid()}-{str(ULID())[-8:].lower()}"

"""Where history.path is unset nothing of it is loaded; where pyarrow is missing the start says what to install."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from reconciler.clock import ManualClock
from reconciler.errors import ConfigurationError, MissingDependency
from reconciler.settings.file import load_settings
from reconciler.settings.schema import Settings
from reconciler.wiring.history import history_sink, rows_of_key, sees_history, writer_name
from reconciler.wiring.round_rules import history_generations

EXAMPLE = Path("config/reconciler.toml")


def settings(**history: Any) -> Settings:
    return load_settings(EXAMPLE, {}, {"history": history} if history else {})


def test_without_a_path_no_history_no_kept_sets_and_no_pyarrow() -> None:
    assert history_sink(settings(), ManualClock()) is None
    assert history_generations(settings()) == 0
    assert rows_of_key(settings(), "AB" * 16) == ((), ())
    code = "import sys, reconciler.commands.run, reconciler.commands.status.reading; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.skipif(find_spec("pandas") is None, reason="pandas is missing: the extra audit brings it")
def test_a_history_loads_pandas_which_it_never_uses() -> None:
    code = (
        "import sys; from reconciler.wiring.history import require_pyarrow; require_pyarrow();"
        "from reconciler.history.tables import *; import pyarrow;"
        "table = pyarrow.table({'at_ms': pyarrow.array([1, None, 2])});"
        "parquet_of(table); sys.exit('pandas' in sys.modules or table.to_pandas().shape != (3, 1))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_history_that_is_sealed_merged_and_looked_into_loads_no_more_of_arrow_than_it_needs(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from tests.unit.history.house import *;"
        "from reconciler.history.reader import HistoryReader; from reconciler.history.tables import *;"
        "from reconciler.policy.events import ShardsAtRest;"
        "house = House(Path(sys.argv[1])); house.round(0); done = house.round(1); house.recorder.run_pass();"
        "house.sink.emit(ShardsAtRest(looks=[(done, done.at_ms + 1)])); house.seal();"
        "[mine] = HistoryReader(house.root, ENVIRONMENT).overview([BILLING], spool=house.spool_folder).subscriptions;"
        "once = sorted_once(pa.table({'at_ms': [2, 1, 2], 'text': [None, 'a', None]}));"
        # At once: Arrow's threads, while they begin, now and then abort a process that ends.
        "os._exit('pyarrow.acero' in sys.modules or (mine.rounds, once['at_ms'].to_pylist()) != (2, [1, 2]))"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == 0


def test_a_console_leaves_out_a_history_that_it_cannot_see(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = settings(path=str(tmp_path))
    assert sees_history(found)
    assert not sees_history(settings())
    assert not sees_history(settings(path=str(tmp_path / "of-another-machine")))
    for error, is_seen in ((errno.EACCES, False), (errno.EIO, True)):
        monkeypatch.setattr(os, "listdir", lambda _, error=error: (_ for _ in ()).throw(OSError(error, "refused")))
        assert sees_history(found) is is_seen


def test_a_path_without_pyarrow_is_a_configuration_error_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependency, match="install the extra daemon") as caught:
        history_sink(settings(path="/var/lib/history"), ManualClock())
    assert isinstance(caught.value, ConfigurationError)
    rows, problems = rows_of_key(settings(path="/var/lib/history"), "AB" * 16)
    assert (rows, len(problems)) == ((), 1), "explain tells it and goes on"


def test_as_many_rounds_are_kept_as_commit_generations_allow() -> None:
    kept = [
        history_generations(
            load_settings(EXAMPLE, {}, {"history": {"path": "/h"}, "rounds": {"commit_generations": n}})
        )
        for n in (1, 2, 4, 16)
    ]
    assert kept == [1, 2, 4, 4]


def test_writers_have_names_of_their_own_that_fit_into_paths() -> None:
    names = {writer_name() for _ in range(100)}
    assert len(names) == 100
    assert not any(set(name) & set("/. \\") for name in names)

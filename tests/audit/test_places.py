"""Evidence and history in an object store are read; what must be a local folder is refused by name at the start."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.history_generation.generate import generate
from benchmarks.history_generation.plan import Plan
from reconciler.audit.collect.asking import Runner, Waiting
from reconciler.audit.collect.collecting import collect
from reconciler.audit.collect.sources import Sources, parse_sources
from reconciler.audit.collect.tasks import Answer, LookUpTask, RowsTask, Task
from reconciler.audit.command import main
from reconciler.audit.engines.engine import one_by_one
from reconciler.audit.engines.job import judge_here
from reconciler.audit.errors import AuditError
from reconciler.audit.result.values import JudgedWindow
from tests.audit.asked_options import Options, options_of
from tests.audit.audit_process import audit
from tests.audit.audited_databases import Databases, load_databases, quiet
from tests.audit.delta_exports import LEDGER_TABLES, rows_of
from tests.audit.signed_samples import files_of, new_key
from tests.brokers.jars import s3proxy_jars
from tests.services.relay import Relay, shut
from tests.services.requirements import downloaded, java_missing, require
from tests.services.s3 import S3Server

ACCIDENTS = {"LOST": 3, "DOUBLE_EFFECT": 2, "EFFECT_LATE": 2}


@pytest.mark.parametrize("url", ["s3a://audits/day", "s3://audits/day", "hdfs://namenode/audits/day"])
@pytest.mark.parametrize(
    "command",
    [
        ["audit", "--evidence", "evidence", "--out", "URL"],
        ["audit", "--evidence", "evidence", "--out", "out", "--previous", "URL"],
        ["audit", "--evidence", "evidence", "--out", "out", "--signing-key", "URL"],
        ["statement", "keygen", "URL"],
        ["package", "URL"],
    ],
)
def test_a_url_where_a_local_path_is_needed_never_becomes_a_folder(
    command: list[str], url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([url if part == "URL" else part for part in command]) == 2
    assert f"{url}: this must be a local path" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("option", "url", "message"),
    [
        ("--evidence", "s3a://audits/day", "write s3://audits/day"),
        ("--history", "s3n://audits/day", "write s3://audits/day"),
        ("--history", "wasb://box@account/day", "write abfs://box@account/day"),
        ("--history", "wasbs://box@account/day", "write abfss://box@account/day"),
        ("--history", "ftp://host/history", "none of the file systems that are read"),
    ],
)
def test_a_url_that_nobody_reads_is_refused_by_name(
    option: str, url: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", option, url, "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_export_where_nobody_reads_is_refused_by_name() -> None:
    with pytest.raises(AuditError, match=r"--outbox shop: parquet:s3a://audits/outbox: .* write s3://audits/outbox"):
        parse_sources(outbox=["shop=parquet:s3a://audits/outbox"])


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generated") / "evidence"
    generate(Plan(rows=300, seed=5, accidents=ACCIDENTS, topics=1), folder)
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    require(java_missing())
    downloaded(s3proxy_jars)
    with S3Server(tmp_path_factory.mktemp("s3")) as running:
        yield running


def test_evidence_and_history_in_an_object_store_give_the_bytes_of_local_ones(
    server: S3Server, generated: Path, tmp_path: Path
) -> None:
    shutil.copytree(generated, server.buckets / "audits" / "day")
    new_key(tmp_path)
    key: Options = ["--signing-key", tmp_path / "auditor.pem", "--engine", "here"]
    asked: Options = ["--evidence", "s3://audits/day", "--out", tmp_path / "there"]
    there = audit("audit", *asked, *key, environment=server.environment)
    assert there.exit_code == 1, there.stderr
    assert audit("audit", "--evidence", generated, "--out", tmp_path / "here", *key).exit_code == 1
    assert files_of(tmp_path / "there") == files_of(tmp_path / "here")
    found = [finding["class"] for finding in json.loads((tmp_path / "there" / "findings.json").read_bytes())]
    assert found.count("LOST") == ACCIDENTS["LOST"]

    verified = audit(
        *("statement", "verify", tmp_path / "there", "--public-key", tmp_path / "auditor.pem.pub"),
        *("--evidence", "s3://audits/day", "--output", "json"),
        environment=server.environment,
    )
    assert (verified.exit_code, verified.document["verdict"]) == (0, "verified"), verified.stdout


@pytest.mark.nightly
def test_a_history_in_an_object_store_is_collected_from_and_judged(
    server: S3Server, generated: Path, tmp_path: Path
) -> None:
    numbers = iter(range(9))
    databases = load_databases(generated, lambda: f"sqlite:///{tmp_path}/{next(numbers)}.db")
    shutil.copytree(databases.history, server.buckets / "history" / "service")
    (tmp_path / "asked").mkdir()
    asked = options_of(databases, tmp_path / "asked")
    asked[asked.index("--history") + 1] = "s3://history/service"
    ended = audit("audit", *asked, "--out", tmp_path / "out", "--engine", "here", environment=server.environment)
    assert ended.exit_code == 1, ended.stderr
    assert {name: ended.document["classes"][name] for name in ACCIDENTS} == ACCIDENTS
    document = json.loads((tmp_path / "out" / "evidence" / "evidence.json").read_bytes())
    assert document["history"] == "s3://history/service"


class Switch(Relay):
    """Carries what clients and the server say until it is `off`, and then ends each connection at once."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.off = False
        self.ended = 0

    def serve(self, client: socket.socket, server: socket.socket) -> None:
        for source, target in ((client, server), (server, client)):
            self.spawn(self._carry, source, target)

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                if self.off:
                    self.ended += 1
                    break
                target.sendall(data)
        shut(source)
        shut(target)


def exported(databases: Databases, bucket: Path) -> Sources:
    """The three databases as Parquet exports in an object store; effects by what the inbox says."""
    places = {
        "outbox": (databases.outbox_url, "reconciler_outbox"),
        "inbox": (databases.inbox_url, "reconciler_inbox"),
        **{f"ledger/{name}": (databases.ledger_url, name) for name in LEDGER_TABLES},
    }
    for place, (url, table) in places.items():
        (bucket / place).mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows_of(url, table)), bucket / place / "part.parquet")
    address = f"parquet:s3://{bucket.name}"
    groups = sorted({group for s in databases.asked["subscriptions"] for group in s["producer_groups"]})
    return parse_sources(
        outbox=[f"{group}={address}/outbox" for group in groups],
        inbox=[f"{s['topic']}/{s['group']}={address}/inbox" for s in databases.asked["subscriptions"]],
        ledger=f"{address}/ledger",
    )


def collected(
    databases: Databases, sources: Sources, history: str, folder: Path, run: Runner, waiting: Waiting
) -> JudgedWindow:
    folder.mkdir()
    request = replace(databases.request(sources), history=history)
    request = replace(request, subscriptions=tuple(replace(s, effects=False) for s in request.subscriptions))
    collect(request, folder, run, quiet, waiting)
    return judge_here(folder)


@pytest.mark.parametrize(
    "while_",
    [
        "rows are read",
        pytest.param("files are listed", marks=pytest.mark.nightly),
        pytest.param("the history is read", marks=pytest.mark.nightly),
    ],
)
def test_an_object_store_that_is_away_is_asked_again(
    while_: str, server: S3Server, generated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = iter(range(9))
    databases = load_databases(generated, lambda: f"sqlite:///{tmp_path}/{next(numbers)}.db")
    bucket = server.buckets / f"away-while-{while_.replace(' ', '-')}"
    sources = exported(databases, bucket)
    shutil.copytree(databases.history, bucket / "history")
    pauses: list[float] = []
    with Switch(server.port) as store:
        store.start()
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{store.port}")

        def run(function: Callable[[Task], Answer], tasks: Sequence[Task]) -> list[Answer]:
            kinds = {type(task) for task in tasks}
            store.off |= (
                not pauses and {"rows are read": RowsTask, "the history is read": LookUpTask}.get(while_) in kinds
            )
            answers = one_by_one(function, tasks)
            # The ledger's are listed next.
            store.off |= not pauses and while_ == "files are listed" and RowsTask in kinds
            return answers

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            store.off = False

        history = f"s3://{bucket.name}/history"
        began: list[int] = []

        def clock() -> float:
            """The reading took an hour before the store was away."""
            began.append(0)
            return 3_600 * (len(began) > 1)

        waiting = Waiting(clock=clock, pause=pause)
        found = collected(databases, sources, history, tmp_path / "away", run, waiting)
        assert (store.ended > 0, pauses) == (True, [1.0])
        expected = collected(databases, sources, history, tmp_path / "there", one_by_one, waiting)
    assert (found.classes, found.findings) == (expected.classes, expected.findings)
    assert found.classes["LOST"] == ACCIDENTS["LOST"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "another"}, "ACCESS_DENIED"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "cannot be read"),
    ],
)
def test_an_object_store_that_refuses_is_named_before_anything_is_started(
    server: S3Server, tmp_path: Path, changed: dict[str, str], message: str
) -> None:
    ended = audit(
        *("audit", "--evidence", "s3://audits/day", "--out", tmp_path / "out", "--output", "json"),
        environment={**server.environment, **changed},
    )
    assert (ended.exit_code, ended.document["reason"]) == (2, "inputs"), ended.stdout
    assert message in ended.document["message"]
    assert "--evidence s3://audits/day" in ended.document["message"]
    assert list(tmp_path.iterdir()) == []

"""Evidence and history in an object store are read; what must be a local folder is refused by name at the start."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.history_generation.generate import generate
from benchmarks.history_generation.plan import Plan
from reconciler.audit.collect.sources import parse_sources
from reconciler.audit.command import main
from reconciler.audit.errors import AuditError
from tests.audit.asked_options import Options, options_of
from tests.audit.audit_process import audit
from tests.audit.audited_databases import load_databases
from tests.audit.signed_samples import files_of, new_key
from tests.brokers.jars import s3proxy_jars
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

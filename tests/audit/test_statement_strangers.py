"""`statement verify` of a folder from a stranger, who has signed what lies in it: nothing outside is read or asked."""

from __future__ import annotations

import hashlib
import json
import os
import select
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.audit.command import main
from reconciler.audit.errors import AuditError
from reconciler.audit.evidence.memory import bounded_memory
from reconciler.audit.output.writing import write_output
from reconciler.audit.result.documents import canonical
from reconciler.audit.statement import confined
from reconciler.audit.statement.confined import ConfinedFolder, Refused, suspect_json
from reconciler.audit.statement.inputs import InputFolder
from reconciler.audit.statement.keys import SigningKey
from reconciler.audit.statement.verification import VerifyReport
from reconciler.audit.statement.verify import verify_statements
from tests.audit import signed_samples as samples

OUTBOX = "outbox/prefix=00/part-0.parquet"
STATEMENT = "statement/ORDERS--billing"


class Stranger:
    """An output with its evidence, the key that signed it, and a neighbour that must not be read."""

    def __init__(self, folder: Path, key: SigningKey) -> None:
        self.folder, self.key = folder, key
        self.out = folder / "given"
        self.outside = folder / "outside"
        self.outside.mkdir()
        self.secret = self.outside / "secret"
        self.secret.write_bytes(b"not yours")

    @property
    def evidence(self) -> Path:
        return self.out / "evidence"

    def verify(self) -> VerifyReport:
        return verify_statements(self.out, self.key.public)

    def move_out(self, name: str) -> Path:
        """Leaves a link behind that leads to the same bytes."""
        moved = (self.out / name).rename(self.outside / Path(name).name)
        (self.out / name).symlink_to(moved)
        return moved

    def sign(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Alters every statement, and signs it again."""
        for path in self.out.glob("statement/*--*.json"):
            document = json.loads(path.read_bytes())
            change(document)
            data = canonical(document)
            path.write_bytes(data)
            path.with_suffix(".sig").write_bytes(self.key.sign(data))

    def sign_file(self, name: str, data: bytes) -> None:
        """Puts an output in place, and has the statements vouch for it."""
        (self.out / name).write_bytes(data)
        sha256 = hashlib.sha256(data).hexdigest()

        def vouch(document: dict[str, Any]) -> None:
            document["outputs"] = [one for one in document["outputs"] if one["path"] != name]
            document["outputs"].append({"path": name, "bytes": len(data), "sha256": sha256})
            if name == "statement/inputs.json":
                document["inputs"]["list_sha256"] = sha256

        self.sign(vouch)

    def name_input(self, path: str) -> None:
        """Lists an input with the digest of the neighbour's secret."""
        listed = json.loads((self.out / "statement/inputs.json").read_bytes())
        sha256 = hashlib.sha256(self.secret.read_bytes()).hexdigest()
        self.sign_file("statement/inputs.json", canonical([*listed, {"path": path, "rows": -1, "sha256": sha256}]))

    def name_output(self, path: str) -> None:
        data = self.secret.read_bytes()
        said = {"path": path, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        self.sign(lambda document: document["outputs"].append(said))


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SigningKey]:
    folder = tmp_path_factory.mktemp("signed")
    key, _ = samples.new_key(folder)
    judged = samples.judged_of(folder / "evidence")
    out = write_output(judged, folder / "out", signing_key=key, evidence=folder / "evidence", keep_evidence=True)
    return out, key


@pytest.fixture
def stranger(tmp_path: Path, signed: tuple[Path, SigningKey]) -> Stranger:
    shutil.copytree(signed[0], tmp_path / "given")
    return Stranger(tmp_path, signed[1])


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def told(report: VerifyReport) -> str:
    return "\n".join([*map(str, report.differences), *report.not_checked, *report.unanswered])


@pytest.mark.parametrize(
    "address",
    [
        "s3://bucket/history?endpoint_override=127.0.0.1:{port}&scheme=http&access_key=a&secret_key=b",
        "s3://a:b@bucket/history?endpoint_override=http%3A%2F%2F127.0.0.1:{port}&region=x",
        "gs://anonymous@bucket/history?endpoint_override=127.0.0.1:{port}&scheme=http",
        "hdfs://127.0.0.1:{port}/history",
        "http://127.0.0.1:{port}/history",
        "//127.0.0.1:{port}/history",
        "file:///etc",
    ],
)
def test_an_address_in_a_file_is_not_asked(stranger: Stranger, listener: socket.socket, address: str) -> None:
    said = address.format(port=listener.getsockname()[1])
    (stranger.evidence / "evidence.json").write_text(json.dumps({"version": 1, "history": said}))
    report = stranger.verify()
    asked, _, _ = select.select([listener], [], [], 0)
    assert not asked, "somebody connected"
    assert f"evidence.json says that it lies at {said}: name it with --history PATH" in told(report)
    assert report.exit_code == 1


@pytest.mark.parametrize("said", ["/etc", "../../outside", "history/../../../outside", "a/..", ""])
def test_a_history_outside_of_the_evidence_is_not_read(stranger: Stranger, said: str) -> None:
    moved = (stranger.evidence / "history").rename(stranger.outside / "history")
    (stranger.evidence / "evidence.json").write_text(json.dumps({"history": said and str(moved) if said else said}))
    report = stranger.verify()
    assert "evidence:history" in told(report)
    assert report.files_equal == len(list(stranger.out.glob("*.*"))) + 3


@pytest.mark.parametrize(
    "path",
    [
        "../../outside/secret",
        "history/../../../outside/secret",
        "outbox/../../../outside/secret",
        "{outside}/secret",
        "./evidence.json",
        "outbox//prefix=00",
        "",
        "a\0b",
        "\ud800",
        "x" * 100_000,
        "/".join("x" * 5_000),
    ],
)
def test_a_signed_path_that_leads_out_of_the_folder_is_not_read(stranger: Stranger, path: str) -> None:
    before = stranger.verify().files_equal
    path = path.format(outside=stranger.outside)
    stranger.name_input(path)
    stranger.name_output(path)
    report = stranger.verify()
    assert report.files_equal == before, "the secret counts as one that was compared"
    assert report.exit_code in (1, 2)


@pytest.mark.parametrize("name", ["report.html", "result.json", "statement", "evidence", "evidence/inbox"])
def test_a_link_is_told_and_not_followed(stranger: Stranger, name: str) -> None:
    before = stranger.verify().files_equal
    stranger.move_out(name)
    if name == "statement":
        assert "statement of ORDERS/billing is missing" in told(stranger.verify())
        return
    report = stranger.verify()
    assert "symbolic link: not followed" in told(report)
    assert report.files_equal < before


@pytest.mark.parametrize("suffix", ["json", "sig"])
def test_a_statement_that_is_a_link_is_none(stranger: Stranger, suffix: str) -> None:
    stranger.move_out(f"{STATEMENT}.{suffix}")
    assert stranger.verify().exit_code == 1


def test_an_output_of_an_archive_that_is_a_link_is_told_and_not_followed(stranger: Stranger) -> None:
    (stranger.folder / "archive").mkdir()
    elsewhere = stranger.out.rename(stranger.folder / "elsewhere")
    (stranger.folder / "archive" / "day").symlink_to(elsewhere)
    samples.write_signed(stranger.folder, stranger.key)
    (stranger.folder / "outs" / "link").symlink_to(elsewhere)
    report = verify_statements(stranger.folder / "outs", stranger.key.public)
    assert "link: is a symbolic link: not followed" in report.not_checked
    assert len(report.statements) == 3


@pytest.mark.parametrize(
    "name", ["report.html", "result.json", f"{STATEMENT}.json", f"{STATEMENT}.sig", f"evidence/{OUTBOX}"]
)
def test_a_fifo_or_a_socket_keeps_nobody_waiting(stranger: Stranger, name: str) -> None:
    (stranger.out / name).unlink()
    os.mkfifo(stranger.out / name)
    assert stranger.verify().exit_code == 1
    (stranger.out / name).unlink()
    with socket.socket(socket.AF_UNIX) as listening:
        here = Path.cwd()
        os.chdir((stranger.out / name).parent)  # the name of a socket is at most 107 bytes
        try:
            listening.bind(Path(name).name)
        finally:
            os.chdir(here)
        assert stranger.verify().exit_code == 1


def alter_field(name: str, text: str) -> Callable[[Stranger], None]:
    """A statement that its author signed with a value that no writer of ours would write."""

    def harm(stranger: Stranger) -> None:
        path = stranger.out / f"{STATEMENT}.json"
        document = json.loads(path.read_bytes())
        document[name] = "@@"
        data = canonical(document).replace(b'"@@"', text.encode("utf-8", "surrogatepass"))
        path.write_bytes(data)
        path.with_suffix(".sig").write_bytes(stranger.key.sign(data))

    return harm


def put(name: str, data: bytes) -> Callable[[Stranger], None]:
    """Another statement in its place, which is not signed."""

    def harm(stranger: Stranger) -> None:
        (stranger.out / name).write_bytes(data)

    return harm


def sign(name: str, data: bytes) -> Callable[[Stranger], None]:
    """Another output in its place, which its author signed; and a line of the report is altered."""

    def harm(stranger: Stranger) -> None:
        stranger.sign_file(name, data)
        report = stranger.out / "report.html"
        report.write_bytes(report.read_bytes() + b"<!-- -->")

    return harm


def make_sparse(name: str) -> Callable[[Stranger], None]:
    return lambda stranger: os.truncate(stranger.out / name, 1 << 40)


def bury(stranger: Stranger) -> None:
    place = stranger.out
    for _ in range(300):
        place = place / "d"
    place.mkdir(parents=True)


NESTED = b'{"kind":"checkback-reconciler statement","x":' + b"[" * 900 + b"]" * 900 + b"}"
HOSTILE: dict[str, Callable[[Stranger], None]] = {
    "a number of 4300 digits": alter_field("sequence", "9" * 4300),
    "a number of 5000 digits": alter_field("sequence", "9" * 5000),
    "infinite": alter_field("sequence", "1e999"),
    "no number": alter_field("keys", "NaN"),
    "half a surrogate": alter_field("topic", r'"\ud800"'),
    "a nested value": alter_field("window", "[" * 900 + "]" * 900),
    "an endless name": alter_field("group", '"' + "g" * 1_000_000 + '"'),
    "outputs that are none": alter_field("outputs", '[1,{"path":[]},{"path":{}},{"path":"x","bytes":{}}]'),
    "inputs that are none": alter_field("inputs", '{"list_sha256":[]}'),
    "subscriptions that are none": alter_field("subscriptions", '[1,{"topic":{}},{}]'),
    "a link that is none": alter_field("previous", '{"sha256":[]}'),
    "a nested statement": put(f"{STATEMENT}.json", NESTED),
    "a statement nested without end": put(f"{STATEMENT}.json", b"[" * 1_000_000),
    "a nested result": sign("result.json", b'{"a":' * 900 + b"1" + b"}" * 900),
    "a result of other things": sign("result.json", b'{"subscriptions":[1,{"topic":1}],"window":[],"inputs":5}'),
    "a list of inputs without end": sign("statement/inputs.json", b"[" * 1_000_000),
    "a list of inputs that is none": sign("statement/inputs.json", b'{"a":1}\n'),
    "a statement of a terabyte": make_sparse(f"{STATEMENT}.json"),
    "evidence of a terabyte": make_sparse("evidence/evidence.json"),
    "a row file of a terabyte": make_sparse(f"evidence/{OUTBOX}"),
    "a report of a terabyte": make_sparse("report.html"),
    "folders without end": bury,
}
#: Every file is as it was signed. The others: differences.
CODES = {"folders without end": 0, "inputs that are none": 0}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_folder_is_an_answer_and_no_traceback(
    stranger: Stranger, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    HOSTILE[what](stranger)
    (stranger.folder / "public.pem").write_bytes(stranger.key.public.pem)
    code = main(["statement", "verify", str(stranger.out), "--public-key", str(stranger.folder / "public.pem")])
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err
    assert code == CODES.get(what, 1), printed
    assert len(printed.out) < 50_000


def test_a_folder_of_more_names_than_any_of_ours_is_no_answer(
    stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confined, "ENTRIES_MAX", 10)
    with pytest.raises(AuditError, match="holds more than 10 names") as refused:
        stranger.verify()
    assert refused.value.reason == "inputs"


def test_a_list_that_names_a_file_a_hundred_times_does_not_have_it_read_as_often(
    stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gigabyte that is listed a million times would keep its reader busy for weeks."""
    listed = json.loads((stranger.out / "statement/inputs.json").read_bytes())
    stranger.sign_file("statement/inputs.json", canonical([*listed, *listed[:1] * 100]))
    digests: list[str] = []

    def digest(_folder: InputFolder, path: str) -> str:
        digests.append(path)
        return ""

    monkeypatch.setattr(InputFolder, "digest", digest)
    assert "statement/inputs.json is not as signed, not there, or no list that names each file once" in told(
        stranger.verify()
    )
    assert not digests


def test_a_document_that_unpacks_to_gigabytes_takes_no_more_memory_than_is_allowed(
    stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger.sign_file("statement/inputs.json", b"[" + b"{}," * 20_000_000 + b"{}]")
    with (
        pytest.raises(AuditError, match="of memory to look at") as refused,
        bounded_memory("it", bytes_max=256 * 1024**2),
    ):
        stranger.verify()
    assert refused.value.reason == "inputs"


def test_a_folder_reads_what_lies_in_it_and_says_why_it_reads_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "file").write_bytes(b"data")
    (tmp_path / "a" / "link").symlink_to("file")
    (tmp_path / "loop").symlink_to(".")
    folder = ConfinedFolder(tmp_path).below("a")
    assert folder.read("file", 4) == b"data"
    assert folder.entries() == [("b", "folder"), ("file", "file"), ("link", "link")]
    for path, why in {
        "link": "symbolic link",
        "b": "is a folder",
        "file/x": "is a file",
        "../a/file": "leads out",
        "..": "leads out",
        "": "leads out",
    }.items():
        with pytest.raises(Refused, match=why):
            folder.open(path)
        assert folder.kind(path) in ("link", "folder", None)
    with pytest.raises(Refused, match="is a symbolic link"):
        ConfinedFolder(tmp_path).open("loop/a/file")
    with pytest.raises(Refused, match="more than the 3"):
        folder.read("file", 3)
    with pytest.raises(FileNotFoundError):
        folder.open("c/file")


@pytest.mark.parametrize("data", [b"[" * 40 + b"]" * 40, b"[" * 10**6, b"NaN", b"-Infinity", b"1e400", b"\xff", b""])
def test_json_that_no_writer_of_ours_writes_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"no number|nested|Expecting|decode"):
        suspect_json(data)

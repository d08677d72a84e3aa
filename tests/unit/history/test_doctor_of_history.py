"""What `reconciler doctor` says before a history fails in production."""

from __future__ import annotations

import errno
import resource
from pathlib import Path

import pytest

from reconciler.commands.doctor.history import GIVE_FOLDER, MAKE_ROOM, check_history_folders
from reconciler.settings.schema import Settings


def settings_with(history: dict[str, object]) -> Settings:
    return Settings.model_validate(
        {
            "environment": "test",
            "rocketmq": {"name_servers": "127.0.0.1:9876"},
            "redis": {"url": "redis://127.0.0.1:6379/0"},
            "ledger": {"url": "sqlite:////tmp/none.db"},
            "producers": [{"group": "shop", "topics": ["ORDERS"]}],
            "subscriptions": [{"topic": "ORDERS", "group": "billing"}],
            "history": history,
        }
    )


def levels(history: dict[str, object]) -> dict[str, str]:
    return {
        finding.check: finding.level
        for finding in (one.as_row() for one in check_history_folders(settings_with(history)))
    }


def test_no_history_is_said_and_is_no_failure() -> None:
    assert levels({}) == {"history": "note"}


def test_a_folder_that_will_be_made_is_tried_where_it_will_be(tmp_path: Path) -> None:
    assert levels({"path": str(tmp_path / "a" / "b")})["history"] == "ok"
    assert list(tmp_path.iterdir()) == []  # nothing is left


def test_a_file_where_the_folder_should_be_is_told_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "history").write_text("not a folder")
    findings = check_history_folders(settings_with({"path": str(tmp_path / "history")}))
    failed = [f for f in findings if f.level == "fail"]
    assert failed
    assert failed[0].remedy == GIVE_FOLDER()


def test_a_link_into_nothing_is_told(tmp_path: Path) -> None:
    (tmp_path / "history").symlink_to(tmp_path / "nowhere")
    findings = check_history_folders(settings_with({"path": str(tmp_path / "history")}))
    assert [(one.level, one.remedy) for one in findings[:2]] == [("fail", GIVE_FOLDER())] * 2


def test_a_folder_that_this_login_may_not_look_into_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", refuse)
    findings = check_history_folders(settings_with({"path": str(tmp_path / "history")}))
    assert [(one.level, one.remedy) for one in findings[:2]] == [("fail", GIVE_FOLDER())] * 2


def test_a_disk_that_takes_files_and_no_bytes_is_told(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        findings = check_history_folders(settings_with({"path": str(tmp_path), "spool_path": str(tmp_path / "spool")}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [(one.level, one.remedy) for one in findings[:2]] == [("fail", MAKE_ROOM())] * 2
    assert list(tmp_path.iterdir()) == []  # nothing is left


def test_an_altered_entry_of_the_manifest_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "manifest" / "environment=test"
    folder.mkdir(parents=True)
    (folder / "000000000001.json").write_text("{}")
    assert levels({"path": str(tmp_path)})["history manifest"] == "fail"


@pytest.mark.parametrize("name", ["history", "history spool"])
def test_both_folders_are_looked_at(tmp_path: Path, name: str) -> None:
    assert levels({"path": str(tmp_path), "spool_path": str(tmp_path / "spool")})[name] == "ok"

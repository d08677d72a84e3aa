"""Reads the present folder, and finds one audit of it by name."""

from __future__ import annotations

from http import HTTPStatus

from reconciler.errors import DependencyAway
from reconciler.web.audits.check import AuditCheck
from reconciler.web.audits.folder import AuditEntry, FolderLook
from reconciler.web.audits.shelf import AuditShelf
from reconciler.web.exchange import WebRefusal


def shelf_and_look(shelf: AuditShelf | None) -> tuple[AuditShelf, FolderLook]:
    """Returns the shelf and the present contents of its folder. Raises WebRefusal if no folder is set. Raises
    DependencyAway if the folder is unreadable."""
    if shelf is None:
        detail = "no folder of audits is set: set web.audits_folder and web.audits_public_key"
        raise WebRefusal(HTTPStatus.NOT_FOUND, detail, kind="no-audits")
    look = shelf.look()
    if look.problem:
        raise DependencyAway(look.problem)
    return shelf, look


def find_audit(of: AuditShelf | None, name: str) -> tuple[AuditShelf, AuditEntry, AuditCheck]:
    """Finds an audit and its check by name. Raises WebRefusal for an unknown name, and raises what shelf_and_look
    raises."""
    shelf, look = shelf_and_look(of)
    for entry in look.entries:
        if entry.name == name:
            (check,) = shelf.checks([entry])
            return shelf, entry, check
    raise WebRefusal(HTTPStatus.NOT_FOUND, "no audit in the folder has this name", kind="no-audit")

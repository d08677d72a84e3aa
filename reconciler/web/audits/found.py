"""The folder as it is now, and one audit of it, for whoever asks by a name."""

from __future__ import annotations

from http import HTTPStatus

from reconciler.errors import DependencyAway
from reconciler.web.audits.check import AuditCheck
from reconciler.web.audits.folder import AuditEntry, FolderLook
from reconciler.web.audits.shelf import AuditShelf
from reconciler.web.exchange import WebRefusal


def shelf_and_look(shelf: AuditShelf | None) -> tuple[AuditShelf, FolderLook]:
    """What there is now. Raises WebRefusal: no folder is set; DependencyAway: it cannot be read."""
    if shelf is None:
        detail = "no folder of audits is set: set web.audits_folder and web.audits_public_key"
        raise WebRefusal(HTTPStatus.NOT_FOUND, detail, kind="no-audits")
    look = shelf.look()
    if look.problem:
        raise DependencyAway(look.problem)
    return shelf, look


def find_audit(of: AuditShelf | None, name: str) -> tuple[AuditShelf, AuditEntry, AuditCheck]:
    """By its name, with what is known of it. Raises WebRefusal: there is none; and as shelf_and_look."""
    shelf, look = shelf_and_look(of)
    for entry in look.entries:
        if entry.name == name:
            (check,) = shelf.checks([entry])
            return shelf, entry, check
    raise WebRefusal(HTTPStatus.NOT_FOUND, "no audit in the folder has this name", kind="no-audit")

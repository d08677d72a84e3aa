"""Files of the packages that follow from the code. `make docs` writes them; a test tells one that lags behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from deploy import declared_packages
from reconciler.contract import least_rights, tables

FOLDER = Path(__file__).parent
#: Settings `environment` of deploy/compose/reconciler.toml.
ENVIRONMENT = "compose"
#: Login of the compose file's PostgreSQL -> its role.
LOGINS = {
    "reconciler_run": "run",
    "reconciler_sweep": "sweep",
    "reconciler_audit": "console",
    "order_service": "announcing service",
    "billing_service": "consuming service",
}
#: Database of each tree of tables.
DATABASES: dict[str, least_rights.Tree] = {"orders": "outbox", "billing": "inbox", "ledger": "ledger"}


def compose_rights() -> str:
    """What the owner of the tables runs in psql, after `reconciler db upgrade`."""
    roles = {role.name: role for role in least_rights.ROLES}
    lines = ["-- Written by docs/generate.py; change the code and run `make docs`."]
    for database, tree in DATABASES.items():
        lines += ["", f"\\connect {database}"]
        for login, role in LOGINS.items():
            rights = roles[role].databases.get(tree, ())
            if role == "console":  # the audit has its login, and tells nobody
                rights = tuple(right for right in rights if right.only_with != "notifiers")
            if role == "run":  # `doctor` runs in its container, and reads the revision of the tables
                rights += tuple(right for right in _read_by_doctor(tree) if right not in rights)
            lines += [f"{grant};" for grant in least_rights.grants(rights, login=login, is_mysql=False)]
    return "\n".join(lines) + "\n"


def _read_by_doctor(tree: least_rights.Tree) -> tuple[least_rights.SqlRight, ...]:
    """Without the sweep's tables: a login that may read those is taken for the sweep's."""
    revisions = tables.VERSION_TABLES.values()
    return tuple(right for right in least_rights.DOCTOR.databases.get(tree, ()) if right.table in revisions)


def compose_redis_users() -> str:
    """The ACL file; prepare.sh puts a password's SHA-256 in the place of DIGEST_OF_name."""
    lines = ["user default on nopass -@all +ping"]
    for user in (least_rights.RECONCILER, least_rights.BUSINESS):
        line = user.line(environment=ENVIRONMENT, password="")
        lines.append(line.replace(" > ", f" #DIGEST_OF_{user.name} "))
    return "\n".join(lines) + "\n"


#: Path below deploy/ -> its text.
FILES: dict[str, Callable[[], str]] = {
    "compose/postgres/rights.sql": compose_rights,
    "compose/redis-users.acl": compose_redis_users,
    declared_packages.NAME: declared_packages.text,
}


def write() -> None:
    """Writes all of them."""
    for name, text in FILES.items():
        path = FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text(), encoding="utf-8")

"""What a service loads with the consumer plug-in."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import checkback_consumers

HEAVY = (
    "apscheduler", "pyspark", "pyarrow", "typer", "rich", "structlog", "pydantic", "alembic", "starlette", "uvicorn",
    "jinja2", "rocketmq", "checkback_producers", "fakeredis",
)  # fmt: skip


def test_the_consumer_plug_in_loads_nothing_heavy() -> None:
    modules = [f"checkback_consumers.{module.name}" for module in pkgutil.iter_modules(checkback_consumers.__path__)]
    assert "checkback_consumers.handler" in modules
    script = (
        f"import sys, {', '.join(modules)}\n"
        "print('\\n'.join(name for name in sys.modules if name.split('.')[0] in "
        f"{HEAVY!r} or name.startswith(('reconciler.ledger', 'reconciler.embedded', 'reconciler.settings'))))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == []

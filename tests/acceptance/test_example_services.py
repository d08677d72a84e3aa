"""Applications of docs/examples as their readers get them: from their own requirements, and typed strictly.

`make lint` has mypy's opinion of them."""

from __future__ import annotations

import json
import os
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.acceptance.page_cases import ROOT, World, tried
from tests.page_blocks import DOCS, blocks_of
from tests.unit.testing.inner_pytest import PATHS, paths_with, run_python

pytestmark = [pytest.mark.acceptance, pytest.mark.nightly, pytest.mark.timeout(900)]
#: Folder -> its page.
SERVICES = {
    "celery_shop": "how-to/celery.md",
    "django_shop": "how-to/django.md",
    "fastapi_async": "how-to/fastapi.md",
    "fastapi_threads": "how-to/fastapi-threads.md",
    "flask_shop": "how-to/flask.md",
}
#: Django has no types of its own, and neither has Celery.
TYPED = [service for service in SERVICES if service != "django_shop"]
UNTYPED = ("tasks.py", "test_tasks.py")


@pytest.mark.redis
@pytest.mark.sql("postgres")
@pytest.mark.parametrize("page", SERVICES.values())
def test_a_service_works_in_a_fresh_environment_as_its_page_says(
    page: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with ExitStack() as stack:
        tried(page, World(stack, tmp_path, request), by_night=True, here=calls() if "celery" in page else {})


def calls() -> dict[str, str]:
    """In the page of trials: what Celery's reader does -> in the place of what the others do."""
    page = "how-to/try-a-service.md"
    texts = [block.text.strip().replace("\n", "\n   ") for block in blocks_of(page, (DOCS / page).read_text())]
    (posts,) = (text for text in texts if text.startswith("curl") and "kill" in text)
    (call,) = (text for text in texts if text.startswith("celery"))
    # a job of an interactive shell is a group, which dies as a whole; here the processes of the pool would live on
    return {posts: call.replace("kill -9 %1", "kill -9 $(pgrep --parent $(jobs -p %1)) %1")}


@pytest.mark.redis
@pytest.mark.sql("postgres")
def test_a_service_works_on_gevent_that_is_patched_before_the_fork(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    page = "how-to/flask.md"
    (patching,) = (block.text for block in blocks_of(page, (DOCS / page).read_text()) if "gevent" in block.text)
    (tmp_path / "patching").write_text(patching)
    patched = "mv gunicorn.conf.py plain && cat ../patching plain > gunicorn.conf.py && echo gevent >> requirements.txt"
    here = {
        ". && cd flask_shop": f". && cd flask_shop && {patched}",
        "gunicorn --bind": "gunicorn --worker-class gevent --bind",
    }
    with ExitStack() as stack:
        tried(page, World(stack, tmp_path, request), by_night=True, here=here)


def copied(service: str, folder: Path) -> Path:
    """Without migrations, each a script that Alembic or Django runs, and without what is Celery's."""
    left_out = shutil.ignore_patterns("migrations", *UNTYPED)
    return Path(shutil.copytree(ROOT / "docs/examples" / service, folder, ignore=left_out))


@pytest.mark.parametrize("service", TYPED)
def test_a_service_is_typed_strictly_for_pyright(service: str, tmp_path: Path) -> None:
    folder = copied(service, tmp_path / service)
    settings = {"typeCheckingMode": "strict", "extraPaths": PATHS.split(os.pathsep)}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    paths = paths_with(tmp_path / "packages", "basedpyright")
    ended = run_python("-m", "basedpyright", "--pythonpath", sys.executable, folder=folder, PYTHONPATH=paths)
    assert ended.stdout.startswith("0 errors"), ended.stdout + ended.stderr

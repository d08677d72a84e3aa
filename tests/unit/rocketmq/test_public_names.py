from __future__ import annotations

import subprocess
import sys

import pytest

import reconciler.rocketmq as package


def test_every_public_name_leads_to_its_class() -> None:
    assert set(package.__all__) == set(package._HOMES)
    for name in package.__all__:
        assert getattr(package, name).__name__ == name
    with pytest.raises(AttributeError, match="Nothing"):
        package.Nothing  # noqa: B018  # asking is the test


def test_the_codec_loads_no_client() -> None:
    code = (
        "import sys, reconciler.rocketmq.frame, reconciler.rocketmq.record;"
        "print([m for m in sys.modules if m in ('reconciler.rocketmq.client', 'sqlalchemy', 'redis', 'zstandard')])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"

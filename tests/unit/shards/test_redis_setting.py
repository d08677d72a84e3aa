"""The settings accept what the client opens."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from reconciler.settings.types import RedisUrl

URL: TypeAdapter[object] = TypeAdapter(RedisUrl)


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://user:secret@h1:26379,h2:26380/orders",
        "redis+cluster://h1:6379,h2:6379,h3:6379",
        "redis+cluster://h1:6379",
        "unix:///run/redis.sock?db=0",
        "rediss://h1:6380/0",
    ],
)
def test_a_url_of_each_kind_is_accepted(url: str) -> None:
    assert URL.validate_python(url)


@pytest.mark.parametrize("url", ["redis+cluster://h1:6379,h2:x", "redis+sentinel://h1,h2:99999/svc", "redis://h:x"])
def test_a_malformed_host_among_several_is_refused(url: str) -> None:
    with pytest.raises(ValidationError):
        URL.validate_python(url)

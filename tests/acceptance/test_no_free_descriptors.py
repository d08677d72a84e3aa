"""A process without free file descriptors: it says so, takes no server for unreachable, and opens no outage."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import redis

from tests.acceptance.conftest import DeploymentFactory
from tests.acceptance.deployment import Deployment, Service
from tests.acceptance.work import Work, rounds_go_on
from tests.services.redis_server import RedisServer

pytestmark = [pytest.mark.acceptance, pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(240)]


@contextmanager
def without_free_descriptors(service: Service) -> Iterator[None]:
    """The process opens nothing within the block; what it has open stays."""
    before = resource.prlimit(service.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(service.process.pid, resource.RLIMIT_NOFILE, (3, before[1]))
    yield
    resource.prlimit(service.process.pid, resource.RLIMIT_NOFILE, before)


def outages(deployed: Deployment) -> list[str]:
    return Deployment.rows(deployed.ledger, "SELECT reason FROM reconciler_outage")


def test_a_run_without_free_descriptors_opens_no_outage_and_goes_on_once_it_has_some(
    new_deployment: DeploymentFactory, redis_server: RedisServer
) -> None:
    deployed = new_deployment()
    work = Work(deployed)
    work.commit()
    work.is_whole()
    mark = work.mark()
    with without_free_descriptors(work.service):
        with redis.Redis.from_url(redis_server.url) as client:
            client.client_kill_filter(_type="normal", skipme=True)
        work.tells(mark, '"job": "rounds', "Too many open files", "LimitNOFILE")
        work.commit()
    rounds_go_on(work, 4)
    work.is_whole()
    assert outages(deployed) == []
    assert work.service.end() == 0

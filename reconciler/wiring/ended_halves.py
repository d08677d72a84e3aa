"""Reads halves whose end is known from the brokers, for `reconciler doctor --commit-query`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from reconciler.halves.ended_sample import BrokerSample, EndedHalves, EndedSampling
from reconciler.wiring.half_scan import Progress, ScanRequest, cluster_of, without_master


@dataclass(frozen=True, slots=True)
class ClusterSample:
    """The samples of all brokers."""

    topics: dict[str, EndedHalves] = field(default_factory=dict)
    brokers: list[BrokerSample] = field(default_factory=list)


def sample_ended(request: ScanRequest, keys: Mapping[str, str], *, progress: Progress) -> ClusterSample:
    """Returns halves whose end is known, from all brokers.

    `keys`: topic -> the place of the business key in its halves. Raises BrokerUnavailable if no name server answers, or
    if no name server knows a broker.
    """
    with cluster_of(request) as cluster:
        found = [BrokerSample(name, unread=without_master()) for name in cluster.away]
        for name in cluster.masters:
            sampling = EndedSampling(
                cluster.client,
                name,
                cluster.masters,
                families=cluster.families,
                clock=request.clock,
                records_per_second=request.records_per_second,
                progress=progress,
                keys=keys,
            )
            found.append(sampling.run())
    sample = ClusterSample({topic: EndedHalves() for topic in keys}, found)
    for one in found:
        for topic, halves in one.topics.items():
            sample.topics[topic].add(halves)
    return sample

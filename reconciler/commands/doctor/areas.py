"""The names of areas that `reconciler doctor` checks. A finding about a whole area has the name of the area."""

from __future__ import annotations

from reconciler.contract.facts import Code, Fact

_AREAS = {
    "redis": Code("doctor.redis"),
    "identities": Code("doctor.outbox-identities"),
    "producers": Code("doctor.producer-groups"),
    "inboxes": Code("doctor.inboxes"),
    "tags": Code("doctor.tags-of-settled-rows"),
    "roles": Code("doctor.roles-of-databases"),
    "name servers": Code("doctor.name-servers"),
    "brokers": Code("doctor.brokers"),
    "environment": Code("doctor.environment"),
    "rights": Code("doctor.rights-at-brokers"),
    "check services": Code("doctor.check-services"),
    "topics": Code("doctor.topics"),
    "groups": Code("doctor.groups"),
    "clocks": Code("doctor.clocks"),
    "indexes": Code("doctor.indexes-of-brokers"),
    "floors": Code("doctor.floors"),
    "history": Code("doctor.history"),
    "notifiers": Code("doctor.notifiers"),
}


def area(name: str) -> Fact:
    """Returns the name of the check for an area."""
    return _AREAS[name]()

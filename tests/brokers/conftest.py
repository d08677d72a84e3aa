from __future__ import annotations

from tests.brokers.addresses import address_fixture
from tests.brokers.query_shop import place_fixture, services_fixture

__all__ = ["address_fixture", "place_fixture", "services_fixture"]

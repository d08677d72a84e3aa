from __future__ import annotations

from tests.brokers.addresses import address_fixture

__all__ = ["address_fixture"]

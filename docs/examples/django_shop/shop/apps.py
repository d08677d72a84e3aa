"""Registers the check. No producer is opened here: `ready` also runs in `manage.py migrate`, and before a fork."""

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import Error, register


class ShopConfig(AppConfig):
    """The application."""

    name = "shop"

    def ready(self):
        """When Django has read the settings."""
        register(requests_are_not_atomic)


def requests_are_not_atomic(app_configs, **_):
    """With ATOMIC_REQUESTS each view commits after its block: every outcome would be UNKNOWN."""
    return [
        Error(
            f"ATOMIC_REQUESTS of {alias}: an order would be committed after its block",
            hint="use transaction.atomic() inside the block",
            id="shop.E001",
        )
        for alias, database in settings.DATABASES.items()
        if database.get("ATOMIC_REQUESTS")
    ]

"""The rows of one subscription in a table of the ledger."""

from __future__ import annotations

import sqlalchemy as sa

from reconciler.contract.subscription import Subscription


def named(subscription: Subscription) -> dict[str, str]:
    """Returns the columns that name a subscription."""
    return {
        "environment": subscription.environment,
        "topic": subscription.topic,
        "consumer_group": subscription.group,
    }


def of_subscription(subscription: Subscription, rows: sa.FromClause) -> sa.ColumnElement[bool]:
    """Returns the condition for the rows of a subscription."""
    return sa.and_(*(rows.c[name] == value for name, value in named(subscription).items()))

"""Runs revisions on the database of the service."""

import os

from alembic import context
from sqlalchemy import create_engine, make_url
from tables import Base

engine = create_engine(make_url(os.environ["DATABASE_URL"]).set(drivername="postgresql+psycopg"))
with engine.begin() as connection:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        include_name=lambda name, *_: not str(name).startswith("reconciler_"),
    )
    context.run_migrations()
engine.dispose()

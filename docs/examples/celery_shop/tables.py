"""The service's own tables."""

from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    """Alembic compares its metadata with the database."""


class Order(Base):
    """`number` is made by whoever calls the task: a task that runs again finds the order that an earlier run committed."""

    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    number: Mapped[str] = mapped_column(unique=True)
    customer: Mapped[str]


class Bill(Base):
    """What the worker that bills writes."""

    __tablename__ = "bills"
    number: Mapped[str] = mapped_column(primary_key=True)

"""The service's own tables."""

from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    """Alembic compares its metadata with the database."""


class Customer(Base):
    """Who may order."""

    __tablename__ = "customers"
    name: Mapped[str] = mapped_column(primary_key=True)


class Order(Base):
    """The database makes `id`; `number` is made before, and travels in the message."""

    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    number: Mapped[str] = mapped_column(unique=True)
    customer: Mapped[str]


class Bill(Base):
    """What the worker writes."""

    __tablename__ = "bills"
    number: Mapped[str] = mapped_column(primary_key=True)

"""${message}"""

import sqlalchemy as sa
from alembic import op
${imports or ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}


def upgrade() -> None:
    ${upgrades or "pass"}

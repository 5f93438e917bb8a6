"""What Alembic runs for each migration: it works on the connection that it is given."""

from alembic import context

from cloister_api.ledger.tables import METADATA

__all__: list[str] = []

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    transactional_ddl=False,
)
context.run_migrations()

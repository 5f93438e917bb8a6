"""What Alembic runs for each migration: it works on the connection that it is given."""

from alembic import context

from cloister_api.ledger import tables, usage_tables
from cloister_api.ledger.migrations.recorded import VERSION
from cloister_api.ledger.tables import METADATA

MODULES = (tables, usage_tables)
"""What brings the other tables into METADATA by being imported."""

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    transactional_ddl=False,
    version_table=VERSION.name,
)
context.run_migrations()

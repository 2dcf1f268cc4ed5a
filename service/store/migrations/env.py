"""Alembic's entry: run the migrations on the connection, and in the transaction, of the caller."""

from alembic import context

from service.store.models import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()

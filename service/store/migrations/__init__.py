"""Alembic's scripts, run by `service.store.migrate`; forward only, a backup is the way back."""

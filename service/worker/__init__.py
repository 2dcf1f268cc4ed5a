"""Trains what the ledger has queued, in a process of its own."""

"""Sends load from a process of its own, whose work is in nobody else's time."""

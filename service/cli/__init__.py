"""The `capsule` command."""

from service.cli.app import app, main

__all__ = ["app", "main"]

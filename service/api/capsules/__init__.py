"""Capsule files, versions and aliases."""

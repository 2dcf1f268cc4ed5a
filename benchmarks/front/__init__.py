"""Servers that the front end is compared with, each in a process of its own, and our own without a model."""

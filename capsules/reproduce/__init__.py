"""Reruns the published comparisons: sets, methods, seeds, and what came out as tables."""

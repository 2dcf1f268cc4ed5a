"""Frozen transformers: where they come from, which they are, and the seam each family fits."""

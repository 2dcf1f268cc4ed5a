"""How good a capsule is: metrics, and their tables for a terminal."""

"""Which capsule versions exist, which of them are served, and how that changes under traffic."""

"""One file per schema revision, applied in the order of their numbers."""

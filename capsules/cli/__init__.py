"""The commands that need no server: train, evaluate and inspect."""

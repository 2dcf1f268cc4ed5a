"""What happens inside a backbone while a capsule answers."""

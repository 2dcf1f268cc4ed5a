"""How a capsule token is formed at each layer, one file a variant."""

"""All rows of a batch as one sequence without padding, for any family, variant and mix of them."""

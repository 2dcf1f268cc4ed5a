"""What every request passes through: the edge, and the parts that it is made of."""

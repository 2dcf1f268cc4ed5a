"""What every request passes through, outermost first: observer, failures, body limit."""

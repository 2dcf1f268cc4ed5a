"""What every request passes through, outermost first: observer, unread bodies, failures, body limit."""

"""What can be called, and what runs it."""

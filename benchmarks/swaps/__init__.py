"""Traffic on a server whose capsules change meanwhile, from a process of its own."""

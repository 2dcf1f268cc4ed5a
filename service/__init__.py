"""The server: registry, engine, HTTP and console over the capsule method library."""

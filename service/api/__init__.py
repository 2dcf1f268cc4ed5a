"""The HTTP features, a folder each: `endpoints` speaks HTTP, `schemas` documents it, `service` works."""

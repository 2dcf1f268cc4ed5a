"""Ways to run the injected backbone, all giving the same answers."""

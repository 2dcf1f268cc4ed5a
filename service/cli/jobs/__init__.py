"""`capsule jobs`: training jobs of a server."""

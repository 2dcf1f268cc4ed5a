"""Labelled rows: read from files, checked, split and looked over before training."""

"""Trains capsules on a frozen backbone, resumably and repeatably."""

"""Established methods to compare capsules with, all of them through the PEFT library."""

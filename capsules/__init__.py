"""Capsule Prompt-Tuning as a library: one frozen backbone, one small capsule per task."""

"""Checks the rows of a submission, in this process or in one of their own."""

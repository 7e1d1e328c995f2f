"""Runs judged in isolated batches, and diagnostics of those that deviate."""

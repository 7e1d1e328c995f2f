"""Metamorphic relations of engines on large shapes."""

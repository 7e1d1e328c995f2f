"""Whether torch enforces dtype constraints."""

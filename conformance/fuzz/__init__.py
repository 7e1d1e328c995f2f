"""Search with drawn cases."""

"""Goldens: the expected results of runs, as the oracle computed them, stored with digests."""

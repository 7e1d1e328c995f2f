"""Benchmarks: the latency of lowered models beside their float models."""

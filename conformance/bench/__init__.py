"""Latency of lowered models beside float models."""

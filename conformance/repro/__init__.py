"""Reproduction scripts that need torch alone."""

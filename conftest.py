"""Loads the suite's pytest plugin."""

pytest_plugins = ["conformance.plugin"]

"""Loads the pytest plugin of the suite."""

pytest_plugins = ["conformance.plugin"]

"""The suite's pytest plugin: a module for each thing that an invocation does, with its options, state and hooks."""

pytest_plugins = [
    "conformance.plugin.selecting",
    "conformance.plugin.running",
    "conformance.plugin.searching",
    "conformance.plugin.timing",
]

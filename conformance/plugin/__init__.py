"""The suite's pytest plugin: a module for each thing that an invocation does, with its options, state and hooks."""

pytest_plugins = [
    "conformance.plugin.selecting",
    "conformance.plugin.pooling",
    "conformance.plugin.running",
    "conformance.plugin.progressing",
    "conformance.plugin.searching",
    "conformance.plugin.timing",
]

"""Trusted configs: of the promises of a config those that rows prove, and rules for the layers of a network that are wrong
nevertheless."""

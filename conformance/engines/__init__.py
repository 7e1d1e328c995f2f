"""Engines, which execute quantized models, and traces of executions."""

"""Sweeps over every code of an operator's inputs, at many scales and zero points."""

"""Fuzzing: samples drawn by hypothesis, judged and shrunk."""

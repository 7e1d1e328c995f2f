"""Configs that nobody here wrote, and what their claims need: docs/corpus.md."""

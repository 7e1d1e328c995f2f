"""The torch objects of a run: float model, data, observers, FX graph modules."""

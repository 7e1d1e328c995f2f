"""From a run to torch objects: float model, data, observers, FX graph modules."""

"""Random mutants of kernels, and the analysis that tells which of them the suite notices."""

"""Random mutants of kernels, and the campaign that tells which of them the suite notices."""

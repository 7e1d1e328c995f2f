"""The checks of one run and the evidence they use."""

"""What engines of x86_64 keep of the configs, as `python -m conformance trusted` writes it: modules that need torch alone."""

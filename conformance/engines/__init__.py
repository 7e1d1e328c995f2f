"""What executes quantized models, and the trace of an execution."""

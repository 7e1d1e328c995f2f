"""The backend configs under test: what each quantized backend promises, pattern by pattern."""

"""The backend configs under test: the patterns and dtypes that each quantized backend declares."""

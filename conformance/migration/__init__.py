"""The same claim through FX and through PT2E: what a quantizer keeps of what a backend config promised."""

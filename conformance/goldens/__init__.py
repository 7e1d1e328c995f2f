"""What the oracle computed, stored and verified."""

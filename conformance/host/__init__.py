"""The host: its CPU and environment, instruction set limits, isolation in child processes, memory poisoning."""

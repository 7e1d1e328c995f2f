"""The machine: CPU, instruction set limits, process isolation, memory poisoning."""

"""Mutation testing of the suite: faults are injected one at a time, and each must raise the stated alarms."""

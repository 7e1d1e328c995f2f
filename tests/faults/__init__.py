"""Faults put in one at a time, each of which has to turn the suite red: what it could not notice, it does not test."""

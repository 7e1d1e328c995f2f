"""The commands of `python -m conformance`, a module for each group. No module loads torch before its command runs."""

"""Mistakes of a declaration: what torch would refuse, ignore or never match, found without running a kernel."""

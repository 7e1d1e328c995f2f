"""The least script of a deviating run: the smallest model, shapes and data that still show one finding, with torch alone.

`least.script.least(run, row)` is the entry point.
"""

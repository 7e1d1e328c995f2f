"""Draw random mutants of kernels and tell which of them the suite notices; docs/mutants.md is written from the result."""

import sys

from mutants.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The command `runfold-reconciler`."""

import sys


def main() -> int:
    """Say that the wiring is still missing."""
    sys.stderr.write("runfold-reconciler: not wired yet\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())

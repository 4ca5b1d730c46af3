"""``python -m runfold.cli``."""

import sys

from runfold.cli import main

if __name__ == "__main__":
    sys.exit(main())

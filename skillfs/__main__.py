"""Runs the command line: `python -m skillfs`."""

import sys

from skillfs.faces.cli import main

sys.exit(main())

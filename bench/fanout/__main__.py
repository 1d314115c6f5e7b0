"""`python -m bench.fanout`."""

import sys

from bench.fanout import main

sys.exit(main())

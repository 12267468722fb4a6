"""`python -m sut_data NAME ...` is `sut-prepare NAME ...`."""

from __future__ import annotations

import sys

from sut_data.main import main

sys.exit(main())

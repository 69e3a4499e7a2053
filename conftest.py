"""For every run of pytest, `--nbval` included: what a kernel under test inherits."""

import os

# Cells that take long show their output once, at the end, so that it can be compared.
os.environ["COURSE_LIVE"] = "0"

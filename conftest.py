"""For every run of pytest, `--nbval` included: what a kernel under test inherits."""

import os
import signal

# A shell starts what runs in the background deaf to Ctrl-C, and so would be all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Cells that take long show their output once, at the end, so that it can be compared.
os.environ["COURSE_LIVE"] = "0"

"""No byte gets into a file: `with no_files(): ...`, on a rank."""

from __future__ import annotations

import errno
import resource
from collections.abc import Iterator
from contextlib import contextmanager

WHY = "the exercise allows no files, and one was written"


@contextmanager
def no_files() -> Iterator[None]:
    """Files may not grow while it is entered: the kernel sees those that C++ writes as well."""
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, usual[1]))
    try:
        yield
    except OSError as error:
        if error.errno == errno.EFBIG:
            error.strerror = WHY
        raise
    except RuntimeError as error:
        if "unexpected pos" in str(error):  # torch.save, by a file's name
            error.args = (f"{WHY} ({error})",)
        raise
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)

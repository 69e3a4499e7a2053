"""A seed for each student: hidden inputs that nobody can foresee and everybody can repeat.

seed = the first 6 bytes of HMAC-SHA256(secret, student), as a number below 2^48. Whoever has the
secret can compute it; without it, a student's seed tells nothing about another's.
"""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

from course_lib.trace import Refusal

SEED_BYTES = 6
SHORTEST = 16  # bytes of a secret


def seed_of(student: str, secret: bytes) -> int:
    """The seed of one student."""
    digest = hmac.new(secret, student.encode(), hashlib.sha256).digest()
    return int.from_bytes(digest[:SEED_BYTES], "big")


def read_secret(path: Path) -> bytes:
    """The secret in a file, without the white space around it.

    Raises:
        Refusal: it is too short to be one.
    """
    secret = path.read_bytes().strip()
    if len(secret) < SHORTEST:
        raise Refusal(
            f"make seeds from the secret in {path.name}",
            f"{len(secret)} bytes",
            f"a secret has {SHORTEST} at least; `openssl rand -hex 32 > {path.name}` makes one",
        )
    return secret

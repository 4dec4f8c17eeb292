"""Trying again what a remote store may fail at for a moment, with pauses, up to a deadline."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from skillfs.errors import SkillFSError, StoreUnavailableError
from skillfs.stores.base import KeyRefusedError, StaleFile

__all__ = ["Refused", "persistently"]

T = TypeVar("T")

NOBODY = frozenset({"no connection", "no trusted connection"})
"""Reasons that say that nobody was reached."""

DEADLINE = 30.0
"""Seconds after which a store that keeps failing counts as away."""

UNREACHED = 8.0
"""The same where nobody that could be the store was reached at all: a wrong address gets no better."""

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0


class Refused(Exception):
    """An answer that no repetition makes a better one; raised by `reason_of`. Never reaches a caller.

    Args:
        reason: Words for a person, without anything of the endpoint or the credentials.
        of_key: Whether it says nothing about any other file.
    """

    def __init__(self, reason: str, *, of_key: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.of_key = of_key


def persistently(work: Callable[[float], T], reason_of: Callable[[Exception], str]) -> T:
    """Do something that may fail for a moment.

    Args:
        work: Called with the seconds left.
        reason_of: Puts an error in words for a person, who is to see nothing of endpoint or credentials; or
            raises what it means, when it is no matter of the moment.

    Raises:
        StoreUnavailableError: It failed until the deadline, or was refused.
        KeyRefusedError: It was refused for one file alone.
        OSError: Of the kinds that say something about the file, not about the moment.
        StaleFile: The file is another.
    """
    started = time.monotonic()
    end = started + DEADLINE
    pause = FIRST_PAUSE
    while True:
        try:
            return work(max(0.1, end - time.monotonic()))
        except (SkillFSError, StaleFile):
            raise
        except Exception as error:
            try:
                reason = reason_of(error)
            except Refused as refused:
                if refused.of_key:
                    raise KeyRefusedError(
                        f"the store does not hand the file out: {refused.reason}"
                    ) from error
                raise StoreUnavailableError(f"the store refuses to answer: {refused.reason}") from error
            wait = pause * random.uniform(0.5, 1.0)
            unreached = reason in NOBODY
            if time.monotonic() + wait >= (min(end, started + UNREACHED) if unreached else end):
                advice = (
                    "see that its address is right, or try again later" if unreached else "try again later"
                )
                raise StoreUnavailableError(f"the store does not answer ({reason}); {advice}") from error
        time.sleep(wait)
        pause = min(pause * 2, LONGEST_PAUSE)

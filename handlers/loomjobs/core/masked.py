"""A payload as it may be shown."""

from __future__ import annotations

from loomjobs.core.payload import plain
from loomjobs.core.sensitive import mask


def masked(payload: object, /) -> object:
    """A payload as plain JSON values, with `*****` for each field that is marked as sensitive, for a job's own logs.

    Raises TypeError for what is no payload.
    """
    return mask(plain(payload), type(payload))

"""A payload beside its message, read once: when its job starts, or before where its brakes go by a value in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from loomjobs.core.errors import PayloadError
from loomjobs.core.sealed import Cipher
from loomjobs.core.work import Work, opened
from loomjobs.runtime.ports import Payloads


@dataclass(slots=True, eq=False)
class Remote:
    """Of one delivery. `work` is closed until `read`; a failure is kept, so that what was let past the brakes because
    it cannot be read does not become readable behind them."""

    work: Work
    payloads: Payloads
    cipher: Cipher | None = None
    error: Exception | None = None

    def read(self) -> Any:
        """The payload. Raises PayloadError, BadPayload, CipherUnavailable, ConfigurationError."""
        if self.error is not None:
            raise self.error
        if self.work.is_closed:
            try:
                self.work = self._opened()
            except Exception as error:
                self.error = error
                raise
        return self.work.payload

    def _opened(self) -> Work:
        """One byte more than there should be shows an object that is too large, however large it is."""
        ref = self.work.envelope.payload_ref
        assert ref is not None
        key = ref.key(self.work.job.queue.name)
        try:
            return opened(self.work, self.payloads.get(key, most=ref.size + 1), self.cipher)
        except PayloadError as error:
            raise type(error)(f"{key}: {error}") from error


def goes_by_payload(work: Work) -> bool:
    """Its lock or the limiter of its rate is of a value in its payload."""
    options = work.job.options
    return options.exclusive is not None or (options.rate is not None and options.rate.key is not None)

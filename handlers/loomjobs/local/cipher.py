"""A cipher for the in-memory backend. It hides nothing: what it returns says for which job it is."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass

from loomjobs.core.errors import BadPayload, CipherUnavailable


@dataclass
class MemoryCipher:
    """Implements core's Cipher. `calls` counts what KMS would be asked; `is_down` makes it unavailable."""

    calls: int = 0
    is_down: bool = False

    def encrypt(self, text: str, /, *, job: str) -> str:
        self._call()
        return base64.b64encode(json.dumps([job, text]).encode()).decode()

    def decrypt(self, text: str, /, *, job: str) -> str:
        self._call()
        try:
            bound_to, plain = json.loads(base64.b64decode(text, validate=True))
        except ValueError:
            raise BadPayload("$", "its encrypted fields were changed after they were sent") from None
        if bound_to != job:
            raise BadPayload("$", "its encrypted fields belong to another job")
        return str(plain)

    def _call(self) -> None:
        self.calls += 1
        if self.is_down:
            raise CipherUnavailable("the cipher was switched off")

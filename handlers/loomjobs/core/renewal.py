"""The body of a renewed message: the same envelope, and in it what the old message alone knew."""

from __future__ import annotations

import json
from typing import Any

from loomjobs.core.delivery import Delivery
from loomjobs.core.later import literal
from loomjobs.core.letter import ATTRIBUTE
from loomjobs.core.work import identity_of


def renewed_body(delivery: Delivery) -> str:
    """Byte for byte the same, unless the new message would lose something: its id, which a foreign producer left to
    the first message, and that it was redriven, which a message attribute said."""
    try:
        members: Any = json.loads(delivery.body)
    except (ValueError, RecursionError):
        return delivery.body
    if not isinstance(members, dict):
        return delivery.body
    added: dict[str, Any] = {}
    if "id" not in members:
        added["id"] = identity_of(delivery)
    if ATTRIBUTE in delivery.attributes and not members.get("redrives"):
        added["redrives"] = 1
    return literal(json.dumps(members | added, ensure_ascii=True) if added else delivery.body)

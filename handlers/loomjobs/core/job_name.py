"""The grammar of job names."""

from __future__ import annotations

import re


def check_job_name(name: object) -> str | None:
    """Advice for a name that is not one, or None. A name is dotted, `domain.verb-noun`, up to 100 characters."""
    if isinstance(name, str) and len(name) <= 100 and re.fullmatch(r"[a-z][a-z0-9-]*(\.[a-z][a-z0-9-]*)+", name):
        return None
    return (
        "Use two or more parts of lower-case letters, digits and hyphens, joined by dots, the first naming the domain: "
        "billing.post-statement."
    )

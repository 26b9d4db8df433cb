"""The environments, as data. `account` and `region` None are those of the CLI's profile at deploy."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from loomjobs.core.environment import Environment
from loomjobs.core.uses import Rate

_SENDER: Final = "statements@example.com"
"""An identity that SES has verified in the account; mails go to the simulator's addresses only."""

_ALL: Final = (
    Environment(
        name="local",
        retain=False,
        log_retention_days=1,
        pace=0.02,
        # nobody's system is behind it here, and a demo is short
        rates={"accounting-api": Rate(6_000, per=timedelta(minutes=1))},
        architecture="host",
        local=True,
        settings={
            # the demo starts accounting on a free port and says which
            "accounting-url": os.environ.get("DEMO_ACCOUNTING_URL", "http://127.0.0.1:8099"),
            "mail-sender": _SENDER,
        },
    ),
    Environment(
        name="dev",
        log_level="DEBUG",
        retain=False,
        log_retention_days=14,
        settings={"accounting-url": "https://accounting.dev.example.com", "mail-sender": _SENDER},
    ),
    Environment(
        name="staging",
        log_retention_days=30,
        settings={"accounting-url": "https://accounting.staging.example.com", "mail-sender": _SENDER},
    ),
    Environment(
        name="prod",
        log_retention_days=365,
        alarm_email="on-call@example.com",
        settings={"accounting-url": "https://accounting.example.com", "mail-sender": _SENDER},
    ),
)

ENVIRONMENTS: Final[Mapping[str, Environment]] = {environment.name: environment for environment in _ALL}

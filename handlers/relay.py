"""Lambda entry point: sends the rows of the outbox to their queues."""

from __future__ import annotations

from loomjobs.aws.relay import make_relay_handler

handler = make_relay_handler()

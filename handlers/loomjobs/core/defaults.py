"""Every default of the product, in one place. Durations are seconds unless the type says otherwise."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

ATTEMPTS: Final = 5
BACKOFF_BASE: Final = timedelta(seconds=15)
BACKOFF_CAP: Final = timedelta(minutes=10)

JOB_TIMEOUT: Final = timedelta(seconds=30)
HEARTBEAT_LEAST: Final = timedelta(seconds=15)
"""Three beats fit in it, with time for a retried call each."""
MEMORY_MB: Final = 512
MAX_WORKERS: Final = 10
BATCH_SIZE: Final = 10
ADMIT_REFRESH: Final = timedelta(seconds=10)
"""A process that sends all month asks SQS 260,000 times: $0.10."""

RESERVE: Final = 5
"""Time kept at the end of an invocation for records, hand-offs and the answer. No job starts below it + its timeout."""
LEASE_MARGIN: Final = 2
"""A lease outlives its invocation by this much, since the kill is not instant."""
CLOCK_SKEW: Final = 5
"""A lease is taken over only this long after it lapsed: hosts' clocks differ."""
HAND_BACK: Final = (30, 120)
"""Bounds of the random wait of a message handed back because the store was not available."""

HALTED: Final = (600, 900)
"""Bounds of the random wait of a message whose FIFO group is halted by a dead letter."""

SOURCE_RETENTION: Final = 7 * 86_400
DLQ_RETENTION: Final = 14 * 86_400
REDRIVE_WINDOW: Final = 9 * 86_400
"""After a dead letter expired its record is still kept this long, so that a late redrive is recognised."""
RECORD_TTL: Final = SOURCE_RETENTION + DLQ_RETENTION + REDRIVE_WINDOW
"""A record outlives every message that could still ask for it."""
PAYLOAD_DELAY: Final = 30 * 86_400
"""Longest delay of a call whose payload is stored beside its message."""
PAYLOAD_LIFE: Final = RECORD_TTL + PAYLOAD_DELAY
"""An object outlives every message that could still ask for it. S3 rounds up to the next midnight UTC."""
PAYLOAD_BYTES: Final = 16 * 1024 * 1024
"""Largest payload beside a message. Decoded it is several times as large, and a worker must hold it."""
BODY_WARNING: Final = 10_240
"""Bytes of a body from which on a producer says that an address would do better."""
RECEIVE_MARGIN: Final = 86_400
"""The receive budget is sized for the retention less this."""
HOPS: Final = 13
"""Longest chain of jobs that send jobs, with a margin: Lambda stops one at about 16 hops and the message with it:
https://docs.aws.amazon.com/lambda/latest/dg/invocation-recursion.html"""
NEWER_VERSION_GRACE: Final = 3_600
"""How long a message of a newer version waits for a rolling deploy before it is dead-lettered."""

CIPHER_RECEIVES: Final = 60
"""How often a message whose fields cannot be decrypted is received, a minute apart, before it is dead-lettered."""

ALARM_PERIOD: Final = 60

RELAY_TIMEOUT: Final = 60
RELAY_BATCH: Final = 100
"""Rows that a stream hands to the relay at once: ten calls of SQS."""
RELAY_RETRIES: Final = 3
OUTBOX_LAG: Final = 300
"""The alarm's threshold: five sweeps did not get the row sent."""

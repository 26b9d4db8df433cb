"""Every name that two sides must agree on: environment variables, parameter paths, stack names."""

from __future__ import annotations

from typing import Final

from loomjobs.core.environment import Environment

# -- environment variables ----------------------------------------------------------------------
ENV: Final = "LOOMJOBS_ENV"
"""Name of the environment, for producers outside Lambda."""
APP: Final = "LOOMJOBS_APP"
QUEUE: Final = "LOOMJOBS_QUEUE"
"""Name of the queue that this worker serves."""
MODULES: Final = "LOOMJOBS_MODULES"
"""Comma-separated modules that hold this worker's jobs."""
TABLE: Final = "LOOMJOBS_TABLE"
OUTBOX: Final = "LOOMJOBS_OUTBOX"
"""Name of the outbox table: of workers whose jobs send, and of the relay."""
PAYLOADS: Final = "LOOMJOBS_PAYLOADS"
"""Name of the bucket of payloads that go beside their messages: of workers that read or write there."""
DLQ_URL: Final = "LOOMJOBS_DLQ_URL"
SOURCE_URL: Final = "LOOMJOBS_SOURCE_URL"
SOURCE_ARN: Final = "LOOMJOBS_SOURCE_ARN"
RECEIVES: Final = "LOOMJOBS_RECEIVES"
"""The source queue's maxReceiveCount: the receive budget of its messages."""
LATER_GROUP: Final = "LOOMJOBS_LATER_GROUP"
"""Schedule group of the one-off schedules that send a message later than SQS can."""
LATER_ROLE: Final = "LOOMJOBS_LATER_ROLE"
"""ARN of the role that such a schedule sends with."""
LATER_DLQ: Final = "LOOMJOBS_LATER_DLQ"
"""ARN of the queue for what such a schedule could not send."""
RECORD_TTL: Final = "LOOMJOBS_RECORD_TTL"
MAPPING: Final = "LOOMJOBS_MAPPING"
"""Parameter path of this worker's event source mapping, where one of its jobs uses a breaker."""
VALVE_ROLE: Final = "LOOMJOBS_VALVE_ROLE"
"""ARN of the role with which a schedule switches the mapping on again."""
RATES: Final = "LOOMJOBS_RATES"
"""The environment's own rates of services: JSON, `{"name": [count, seconds]}`."""
PACE: Final = "LOOMJOBS_PACE"
RELEASE: Final = "LOOMJOBS_RELEASE"
KEY: Final = "LOOMJOBS_KEY"
"""ARN of the environment's KMS key, where a job of this worker, or one that it sends to, has encrypted fields."""
METRICS_NAMESPACE: Final = "POWERTOOLS_METRICS_NAMESPACE"
"""Powertools' own variable."""


def queue_url_key(queue: str) -> str:
    """Environment variable with the URL of a queue that this worker may send to."""
    return f"LOOMJOBS_SEND_{_upper(queue)}"


def address_key(resource: str) -> str:
    return f"LOOMJOBS_ADDRESS_{_upper(resource)}"


def setting_key(setting: str) -> str:
    return f"LOOMJOBS_SETTING_{_upper(setting)}"


def secret_key(secret: str) -> str:
    """Environment variable with a secret's ARN; never with its value."""
    return f"LOOMJOBS_SECRET_{_upper(secret)}"


def _upper(name: str) -> str:
    return name.upper().replace("-", "_")


# -- parameter paths (SSM Parameter Store) ------------------------------------------------------
def parameter(app: str, env: str, *path: str) -> str:
    """`/app/env/...`: how stacks and producers find what another stack made."""
    return "/" + "/".join((app, env, *path))


def queue_url_parameter(app: str, env: str, queue: str) -> str:
    return parameter(app, env, "queues", queue, "url")


def payloads_parameter(app: str, env: str) -> str:
    return parameter(app, env, "foundation", "payloads", "name")


def later_parameters(app: str, env: str) -> dict[str, str]:
    """Environment variables of one-off schedules, each with the parameter that holds its value."""
    paths = {LATER_GROUP: "group", LATER_ROLE: "role", LATER_DLQ: "dlq"}
    return {key: parameter(app, env, "queues", "later", path) for key, path in paths.items()}


# -- stacks -------------------------------------------------------------------------------------
def stack(environment: Environment, part: str) -> str:
    """`loomjobs-prod-queues`; a worker's part is `worker-<queue>`."""
    return f"{environment.app}-{environment.name}-{part}"


OUTBOX_LAG: Final = "OutboxLag"
"""Metric of the relay, in ms, with the dimensions service and environment."""
SWEEP: Final = {"loomjobs": "sweep"}
"""What EventBridge Scheduler sends to the relay."""
TICKS: Final = "ticks"
"""The queue of schedule ticks; no queue of a team may have this name."""
TICK_JOB: Final = "loomjobs.tick"
SCHEDULED_TIME: Final = "<aws.scheduler.scheduled-time>"
"""Replaced by EventBridge Scheduler in what it sends:
https://docs.aws.amazon.com/scheduler/latest/UserGuide/managing-schedule-context-attributes.html"""


# -- metrics ------------------------------------------------------------------------------------
def metrics_namespace(app: str, env: str) -> str:
    """Of an environment's own metrics: two environments in one account must not share them."""
    return f"{app}-{env}"

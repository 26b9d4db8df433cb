"""Where things of an environment are: in a worker from its environment variables, elsewhere from SSM parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from loomjobs.aws import clients
from loomjobs.core import names
from loomjobs.core.errors import ConfigurationError

if TYPE_CHECKING:
    from mypy_boto3_ssm import SSMClient


def given(environment: Mapping[str, str], key: str) -> str:
    """A variable that the stack of this worker sets. Raises ConfigurationError."""
    value = environment.get(key, "")
    if not value:
        raise ConfigurationError(f"the environment variable {key} is missing; the stack of this worker sets it")
    return value


class Places:
    """Each is looked up once, by `LOOMJOBS_ENV` and `LOOMJOBS_APP`. `ssm` makes the client where one is needed.

    Its methods raise ConfigurationError.
    """

    def __init__(self, environment: Mapping[str, str], ssm: Callable[[], SSMClient] = clients.ssm) -> None:
        self._environment = environment
        self._ssm = ssm
        self._found: dict[str, str] = {}

    def queue(self, name: str) -> str:
        """A queue's URL."""
        key = names.queue_url_key(name)
        if names.QUEUE in self._environment and not self._environment.get(key):
            raise ConfigurationError(
                f"this worker was not given queue {name!r}: name its job in sends= of the sending job, and deploy"
            )
        return self._find(key, lambda app, env: names.queue_url_parameter(app, env, name))

    def later(self, key: str) -> str:
        """The group, the role or the dead-letter queue of one-off schedules."""
        return self._find(key, lambda app, env: names.later_parameters(app, env)[key])

    def table(self) -> str:
        """The name of the execution table."""
        return self._find(names.TABLE, lambda app, env: names.parameter(app, env, "foundation", "executions", "name"))

    def key(self) -> str:
        """The ARN of the KMS key of encrypted fields."""
        if names.QUEUE in self._environment and not self._environment.get(names.KEY):
            raise ConfigurationError("this worker was not given the key of encrypted fields: deploy it again")
        return self._find(names.KEY, lambda app, env: names.parameter(app, env, "foundation", "key", "arn"))

    def outbox(self) -> str:
        """The name of the outbox table."""
        return self._find(names.OUTBOX, lambda app, env: names.parameter(app, env, "outbox", "table", "name"))

    def payloads(self) -> str:
        """The bucket of payloads that go beside their messages."""
        if names.QUEUE in self._environment and not self._environment.get(names.PAYLOADS):
            raise ConfigurationError(
                "this worker was not given the bucket of payloads: neither its queue nor one that its jobs send to is "
                'declared with oversized="offload"'
            )
        return self._find(names.PAYLOADS, names.payloads_parameter)

    def _find(self, key: str, path: Callable[[str, str], str]) -> str:
        found = self._environment.get(key) or self._found.get(key)
        if not found:
            app = self._environment.get(names.APP, "loomjobs")
            found = self._found[key] = _parameter(path(app, self._env()), self._ssm())
        return found

    def _env(self) -> str:
        env = self._environment.get(names.ENV, "")
        if not env:
            raise ConfigurationError(
                f"which environment? Set {names.ENV} (dev, prod, ...), or use an explicit Producer"
            )
        return env


def _parameter(path: str, ssm: SSMClient) -> str:
    try:
        return ssm.get_parameter(Name=path)["Parameter"].get("Value", "")
    except (ClientError, BotoCoreError) as error:
        raise ConfigurationError(
            f"SSM parameter {path} cannot be read: {error}. Is the environment deployed to this account and region, "
            "and may this role call ssm:GetParameter on it?"
        ) from error

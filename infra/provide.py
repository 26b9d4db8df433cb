"""How infra/resources.py provides what jobs declare: one function a name, joined by `@provides`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from loomjobs.core.environment import Environment
from loomjobs.core.errors import ConfigurationError

if TYPE_CHECKING:
    from aws_cdk.aws_iam import IGrantable
    from constructs import Construct

Grant: TypeAlias = "Callable[[IGrantable], Any]"
"""A grant method of a CDK construct, such as `bucket.grant_read`."""


@dataclass(frozen=True, slots=True)
class Actions:
    """Exactly these actions on exactly these ARNs: CDK's own grants are broader than what a job calls.

    `conditions` are IAM's. An ARN with `*` needs `wildcard`, the reason why it cannot be narrower.
    """

    actions: tuple[str, ...]
    on: str
    conditions: Mapping[str, Any]
    wildcard: str

    def __init__(self, *actions: str, on: str, conditions: Mapping[str, Any] | None = None, wildcard: str = "") -> None:
        object.__setattr__(self, "actions", actions)
        object.__setattr__(self, "on", on)
        object.__setattr__(self, "conditions", conditions or {})
        object.__setattr__(self, "wildcard", wildcard)


Right: TypeAlias = "Grant | Actions"


class Provided:
    """A resource: its address (name, URL, ARN), and what each way of using it needs."""

    def __init__(
        self,
        address: str,
        *,
        read: Right | None = None,
        write: Right | None = None,
        send: Right | None = None,
        use: Right | None = None,
    ) -> None:
        self.address = address
        given = {"read": read, "write": write, "send": send, "use": use}
        self.rights: Mapping[str, Right] = {verb: right for verb, right in given.items() if right is not None}


Provider: TypeAlias = "Callable[[Construct, Environment], Provided]"

_providers: dict[str, Provider] = {}


def provides(name: str) -> Callable[[Provider], Provider]:
    """Register the function that makes, or looks up, the resource that jobs call `name`."""

    def register(provider: Provider) -> Provider:
        earlier = _providers.get(name)
        if earlier is not None and earlier.__qualname__ != provider.__qualname__:
            raise ConfigurationError(
                f"{name!r} is provided twice: by {earlier.__qualname__} and {provider.__qualname__}"
            )
        _providers[name] = provider
        return provider

    return register


def provided() -> Mapping[str, Provider]:
    """The providers by name; import infra.resources first."""
    return _providers

"""Findings of cdk-nag that are meant, each with its reason beside the resource."""

from __future__ import annotations

from aws_cdk import Acknowledgment, Validations
from constructs import Construct


def accept(construct: Construct, rule: str, reason: str) -> None:
    """Acknowledge one finding, such as `AwsSolutions-S1` or `AwsSolutions-IAM5[Resource::*]`."""
    Validations.of(construct).acknowledge(Acknowledgment(id=f"AwsSolutions::{rule}", reason=reason))

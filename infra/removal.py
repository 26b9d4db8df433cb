"""What becomes of data when its stack goes."""

from __future__ import annotations

from aws_cdk import RemovalPolicy

from loomjobs.core.environment import Environment


def removal(environment: Environment) -> RemovalPolicy:
    return RemovalPolicy.RETAIN if environment.retain else RemovalPolicy.DESTROY

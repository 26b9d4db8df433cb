"""A small stack on the embedded AWS: queues with a function that does as a message says, and writes what it got."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import boto3

from infra.emulator import Emulator
from infra.emulator.address import REGION

HANDLER = """
import json, os, sys, time

def handler(event, context):
    failed = []
    for record in event["Records"]:
        order = json.loads(record["body"])
        with open(os.environ["DIARY"], "a") as diary:
            diary.write(json.dumps({"at": time.time(), "pid": os.getpid(), "record": record}) + "\\n")
        time.sleep(order.get("sleep", 0))
        if order.get("raise"):
            raise RuntimeError("as ordered")
        if order.get("fail"):
            failed.append({"itemIdentifier": record["messageId"]})
        if order.get("look"):
            found = {name: value for name, value in os.environ.items()}
            with open(os.environ["DIARY"] + ".environment", "w") as file:
                json.dump({"environment": found, "path": sys.path}, file)
    return {"batchItemFailures": failed}
"""


Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Stack:
    """`diary`: one line per record that the function received."""

    aws: Emulator
    name: str
    diary: Path

    def client(self, service: str) -> Any:
        return boto3.client(
            service,
            endpoint_url=self.aws.endpoint,
            region_name=REGION,
            aws_access_key_id="000000000000",
            aws_secret_access_key="local",
        )

    def deploy(self, template: Mapping[str, object]) -> None:
        formation = self.client("cloudformation")
        known = {stack["StackName"] for stack in formation.describe_stacks()["Stacks"]}
        act = formation.update_stack if self.name in known else formation.create_stack
        act(StackName=self.name, TemplateBody=json.dumps(template), Capabilities=["CAPABILITY_IAM"])
        status = until(lambda: _settled(formation, self.name))
        assert status in {"CREATE_COMPLETE", "UPDATE_COMPLETE"}, formation.describe_stack_events(StackName=self.name)

    def output(self, name: str) -> str:
        (stack,) = self.client("cloudformation").describe_stacks(StackName=self.name)["Stacks"]
        return str({output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}[name])

    def send(self, queue: str, order: Mapping[str, object], **more: str) -> str:
        url = self.output(queue)
        return str(self.client("sqs").send_message(QueueUrl=url, MessageBody=json.dumps(order), **more)["MessageId"])

    def received(self, message: str) -> list[dict[str, Any]]:
        lines = self.diary.read_text().splitlines() if self.diary.exists() else []
        entries = [json.loads(line) for line in lines]
        return [entry for entry in entries if entry["record"]["messageId"] == message]

    def depth(self, queue: str) -> int:
        """Messages in a queue, visible or not."""
        wanted = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.client("sqs").get_queue_attributes(QueueUrl=self.output(queue), AttributeNames=wanted)
        return sum(int(found["Attributes"][name]) for name in wanted)


def until(condition: Callable[[], Value], seconds: float = 20) -> Value:
    """The first true value of a condition; fails after `seconds`."""
    limit = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < limit, "the condition did not come true in time"
        time.sleep(0.05)
    return value


def template(diary: Path, *, queues: Mapping[str, Mapping[str, object]], timeout: int = 20) -> dict[str, object]:
    """Each queue with a dead-letter queue (after two receives), a function and a mapping of two at a time. Outputs:
    the URL of each queue by its name, and of its dead-letter queue as `<name>Dead`."""
    resources: dict[str, object] = {}
    for name, properties in queues.items():
        resources |= _queue(name, properties) | _function(name, diary, timeout)
    urls = {name for name in resources if name.removesuffix("Dead") in queues}
    return {"Resources": resources, "Outputs": {name: {"Value": {"Ref": name}} for name in urls}}


def _queue(name: str, properties: Mapping[str, object]) -> dict[str, object]:
    kind = {"FifoQueue": True} if properties.get("FifoQueue") else {}
    redrive = {"deadLetterTargetArn": {"Fn::GetAtt": [f"{name}Dead", "Arn"]}, "maxReceiveCount": 2}
    return {
        f"{name}Dead": {"Type": "AWS::SQS::Queue", "Properties": kind},
        name: {"Type": "AWS::SQS::Queue", "Properties": {"RedrivePolicy": redrive, **properties}},
    }


def _function(name: str, diary: Path, timeout: int) -> dict[str, object]:
    trust = {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}
    function = {
        "Runtime": "python3.13",
        "Architectures": ["arm64"],
        "Handler": "index.handler",
        "Timeout": timeout,
        "Code": {"ZipFile": HANDLER},
        "Role": {"Fn::GetAtt": [f"{name}Role", "Arn"]},
        "Environment": {"Variables": {"DIARY": str(diary)}},
    }
    mapping = {
        "FunctionName": {"Ref": f"{name}Function"},
        "EventSourceArn": {"Fn::GetAtt": [name, "Arn"]},
        "BatchSize": 10,
        "FunctionResponseTypes": ["ReportBatchItemFailures"],
        "ScalingConfig": {"MaximumConcurrency": 2},
    }
    role = {"AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": [trust]}}
    return {
        f"{name}Role": {"Type": "AWS::IAM::Role", "Properties": role},
        f"{name}Function": {"Type": "AWS::Lambda::Function", "Properties": function},
        f"{name}Mapping": {"Type": "AWS::Lambda::EventSourceMapping", "Properties": mapping},
    }


def _settled(formation: Any, name: str) -> str | None:
    status = formation.describe_stacks(StackName=name)["Stacks"][0]["StackStatus"]
    return None if status.endswith("_IN_PROGRESS") else str(status)

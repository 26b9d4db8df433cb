"""An embedded AWS on this machine: MiniStack, without Docker and without an account.

`make local` keeps one running; `make demo` and the end-to-end tests start and stop their own. CloudFormation, SQS,
Lambda, DynamoDB and the rest are MiniStack's; `inside` closes the gaps that would break a promise, and
docs/local-versus-aws.md lists what stays different.
"""

from infra.emulator.emulator import Emulator, start
from infra.emulator.errors import EmulatorError

__all__ = ["Emulator", "EmulatorError", "start"]

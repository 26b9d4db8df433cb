"""A call as an item of the caller's own DynamoDB transaction: it is enqueued exactly when that commits."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Any, TypeVar, Unpack, overload

from loomjobs.aws.connect import process_cipher, process_payloads, process_places
from loomjobs.aws.transaction import put
from loomjobs.core.address import address
from loomjobs.core.call import Call, CallOptions, call
from loomjobs.core.job import Job
from loomjobs.core.outbox import row_of
from loomjobs.runtime.caller import caller
from loomjobs.runtime.context import ROW

P = TypeVar("P")


@overload
def outbox_item(job: Job[P, Any], payload: P, /, **options: Unpack[CallOptions]) -> dict[str, Any]: ...
@overload
def outbox_item(one: Call, /) -> dict[str, Any]: ...
def outbox_item(first: Job[Any, Any] | Call, payload: Any = None, /, **options: Unpack[CallOptions]) -> dict[str, Any]:
    """A `Put` for boto3's `client.transact_write_items(TransactItems=[...])`, beside the caller's own items.

    The relay sends the job within about a second of the commit; without a commit nothing is sent. The job's id is
    `item["Put"]["Item"]["id"]["S"]`. The table is that of the environment (`LOOMJOBS_ENV`), which has one where a job
    declares `sends=`, or with `Environment(outbox=True)`, which also lets the relay send to every queue.
    A payload that goes beside its message is stored here and now.
    Raises as `call`; InvalidOption for `unique_for=` and `track=`; PayloadTooLarge, PayloadForbidden,
    PayloadUnavailable, ConfigurationError.
    """
    one = first if isinstance(first, Call) else call(first, payload, **options)
    now = datetime.now(UTC)
    id = secrets.token_hex(16)
    message = address(one, id=id, now=now, origin=caller(), cipher=process_cipher(), room=ROW)
    row = row_of(message, now=now)
    if message.parcel is not None:  # a committed row must not be ahead of its payload
        process_payloads().put(message.parcel.key, message.parcel.data)
    return put(row, process_places().outbox())

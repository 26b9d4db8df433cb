"""AWS quotas that the design depends on, each with its unit and its page. Nothing else in the code repeats them."""

from __future__ import annotations

from typing import Final

# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html
SQS_MESSAGE_BYTES: Final = 1_048_576
"""Largest message, and largest sum of a batch call, in bytes: body and user attributes (name, type, value)."""
SQS_BATCH_ENTRIES: Final = 10
SQS_ATTRIBUTES: Final = 10
"""User attributes of one message."""
SQS_DELAY_SECONDS: Final = 900
SQS_VISIBILITY_SECONDS: Final = 43_200
"""Longest visibility timeout, counted from the receive: what has elapsed is subtracted."""
SQS_RETENTION_SECONDS: Final = (60, 1_209_600)
SQS_QUEUE_NAME: Final = 80
"""Characters, `.fifo` included."""
SQS_RECEIVE_COUNT: Final = (1, 1_000)
"""Range of maxReceiveCount."""
CORRELATION: Final = 256
"""Our own: characters of a correlation id, which travels in every message and log line."""
SQS_FIFO_ID: Final = 128
"""Characters of a message group id or deduplication id: ASCII letters, digits, punctuation."""

# https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html
LAMBDA_TIMEOUT_SECONDS: Final = 900
"""The API documents 1,800 s since 2026-11; CDK and cfn-lint still refuse more than 900 (rule E3717)."""
LAMBDA_MEMORY_MB: Final = (128, 10_240)
LAMBDA_ENVIRONMENT_BYTES: Final = 4_096
LAMBDA_UNZIPPED_BYTES: Final = 250 * 1024 * 1024

# https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-parameters.html
MAPPING_BATCH_STANDARD: Final = 10_000
MAPPING_BATCH_FIFO: Final = 10
MAPPING_BATCH_WITHOUT_WINDOW: Final = 10
MAPPING_WINDOW_SECONDS: Final = 300
MAPPING_CONCURRENCY: Final = (2, 1_000)
VISIBILITY_PER_TIMEOUT: Final = 6
"""AWS's advice: a queue's visibility timeout is at least six times the function's timeout."""

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html
DYNAMODB_KEY_BYTES: Final = 2_048
DYNAMODB_ITEM_BYTES: Final = 400 * 1024
PARTIQL_BATCH_STATEMENTS: Final = 25
"""https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchExecuteStatement.html"""

# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html
TRANSACTION_ACTIONS: Final = 100
TRANSACTION_BYTES: Final = 4 * 1024 * 1024
"""Sum of the items in a transaction."""
DYNAMODB_BATCH_WRITES: Final = 25
"""https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchWriteItem.html"""

# https://docs.aws.amazon.com/lambda/latest/dg/services-ddb-params.html
STREAM_RETRIES: Final = (-1, 10_000)

# https://docs.aws.amazon.com/scheduler/latest/APIReference/API_CreateSchedule.html
SCHEDULE_NAME: Final = 64
"""Characters `[0-9A-Za-z-_.]`."""
SCHEDULE_INPUT_BYTES: Final = 262_144
"""Largest input of a schedule's target: https://docs.aws.amazon.com/scheduler/latest/APIReference/API_Target.html"""
SCHEDULE_RETRY_AGE_SECONDS: Final = (60, 86_400)
SCHEDULE_RETRY_ATTEMPTS: Final = (0, 185)

"""An SQS, DynamoDB and Lambda in memory, on a virtual clock: the real executor and codec over them."""

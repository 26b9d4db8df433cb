"""The CDK side: renders the Plan of an environment into stacks."""

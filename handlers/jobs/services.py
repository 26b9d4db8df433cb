"""What the jobs touch. The AWS side is in infra/resources.py, the values per environment in infra/environments.py."""

from __future__ import annotations

from datetime import timedelta

from loomjobs import Rate, Resource, Secret, Service, Setting

billing_table = Resource("billing")
"""Name of the DynamoDB table with purchases and statements; its layout is in billing_items.py."""

statements = Resource("statements")
"""Name of the S3 bucket with the rendered statements, at `statements/1997-01/00001.pdf`."""

mail = Resource("mail")
"""The address that statements are sent from."""

accounting_api = Service("accounting-api", rate=Rate(90, per=timedelta(minutes=1)), breaker=True)
"""It takes 100 calls a minute; ten are left to others. The local environment has a rate of its own."""
accounting_url = Setting("accounting-url")
accounting_token = Secret("accounting-token")

"""What the jobs touch. The AWS side is in infra/resources.py, the values per environment in infra/environments.py."""

from __future__ import annotations

from loomjobs import Resource, Secret, Service, Setting

billing_table = Resource("billing")
"""Name of the DynamoDB table with purchases and statements; its layout is in billing_items.py."""

statements = Resource("statements")
"""Name of the S3 bucket with the rendered statements, at `statements/1997-01/00001.pdf`."""

mail = Resource("mail")
"""The address that statements are sent from."""

accounting_api = Service("accounting-api")
accounting_url = Setting("accounting-url")
accounting_token = Secret("accounting-token")

"""Adapters to AWS: the only place of boto3 and Powertools."""

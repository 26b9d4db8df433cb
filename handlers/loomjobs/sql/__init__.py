"""An outbox in PostgreSQL (psycopg 3), for applications whose data is there: `pip install loomjobs[sql]`."""

from loomjobs.sql.outbox import SqlOutbox
from loomjobs.sql.relay import SqlRelay, opened

__all__ = ["SqlOutbox", "SqlRelay", "opened"]

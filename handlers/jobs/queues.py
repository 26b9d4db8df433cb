"""The queues: what kind of work each carries, and how many of it at a time."""

from __future__ import annotations

from datetime import timedelta

from loomjobs import Queue, Workload

interactive = Queue(
    "interactive",
    workload=Workload.INTERACTIVE,
    batch_size=1,  # nobody waits behind another's job
    job_timeout=timedelta(seconds=30),
    memory_mb=1_769,  # one full vCPU: drawing is CPU work
)

notifications = Queue("notifications", workload=Workload.NEAR_REAL_TIME, job_timeout=timedelta(seconds=60))

billing = Queue("billing", workload=Workload.BULK, job_timeout=timedelta(seconds=15))

accounting = Queue(
    "accounting",
    workload=Workload.BACKGROUND,
    fifo=True,  # a customer's postings arrive in the order of their months
    max_workers=2,  # the accounting system takes two calls at a time: 2 workers, each one job after the other
    batch_size=5,
    job_timeout=timedelta(seconds=90),
)

"""Short timeouts, so that what a kill left comes back within seconds."""

from __future__ import annotations

from datetime import timedelta

from loomjobs import Queue, Workload

batch = Queue("batch", workload=Workload.BACKGROUND, batch_size=10, max_workers=2, job_timeout=timedelta(seconds=1))
side = Queue(
    "side", workload=Workload.BACKGROUND, batch_size=10, parallel=10, max_workers=2, job_timeout=timedelta(seconds=5)
)
long = Queue(
    "long", workload=Workload.BULK, batch_size=1, max_workers=2, job_timeout=timedelta(minutes=14), memory_mb=512
)

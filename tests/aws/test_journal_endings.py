"""What a worker logs and counts of jobs that ended without a run."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from loomjobs.aws.journal import PowertoolsJournal
from loomjobs.core.decision import Acknowledge
from loomjobs.core.delivery import Delivery
from loomjobs.runtime.ports import Run

AT = datetime(2026, 1, 1, tzinfo=UTC)
DELIVERY = Delivery(message_id="m1", body="{}", receipt="r", queue="billing", sent_at=AT, received_at=AT)


@pytest.mark.parametrize(
    ("ended", "metric", "fields"),
    [
        (Acknowledge("expired"), "Expired", {"outcome": "expired"}),
        (Acknowledge("cancelled", "2026-01-01"), "Cancelled", {"outcome": "cancelled", "finished_at": "2026-01-01"}),
        (Acknowledge("removed", note="replaced"), "Removed", {"outcome": "removed", "why": "replaced"}),
    ],
)
def test_each_ending_without_a_run_has_its_outcome_and_its_metric(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ended: Acknowledge,
    metric: str,
    fields: dict[str, Any],
) -> None:
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "loomjobs")
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "loomjobs")
    journal = PowertoolsJournal(queue="billing", jobs=frozenset({"billing.write"}))
    journal.ended(Run(delivery=DELIVERY, decision=ended, job="billing.write", key="c1"))
    journal.flush()
    log, metrics = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert fields.items() <= log.items()
    assert log["level"] == "INFO"
    assert metrics[metric] == [1.0]

"""The demo's own parts: the reader, the accounting service, and a proof that would notice."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from demo.accounting import Ledger
from demo.cloud import pdf_total
from demo.proof import KINDS, Found, compare
from demo.purchases import BadLine, month, read
from jobs.statement import Purchase, Statement, StatementId
from jobs.statement_pdf import draw

TOTALS = {"1": Decimal("11.77"), "2": Decimal("89.00")}


def all_of(*customers: str) -> list[Found]:
    return [Found(kind, customer, TOTALS[customer]) for customer in customers for kind in KINDS]


def test_the_file_holds_the_january_that_is_billed() -> None:
    january = month(date(1997, 1, 1))
    assert (len(january), sum(map(len, january.values()))) == (7_846, 8_928)
    assert list(month(date(1997, 1, 1), customers=2)) == ["00001", "00002"]
    assert sum(1 for _ in read()) == 69_659


@pytest.mark.parametrize("line", ["00001 19970101 1", "00001 19971301 1 11.77", "00001 19970101 x 11.77", "a b c d e"])
def test_a_line_that_is_no_purchase_is_named_by_its_number(tmp_path: Path, line: str) -> None:
    path = tmp_path / "bad.txt"
    path.write_text(f" 00001 19970101  1   11.77\n{line}\n")
    with pytest.raises(BadLine, match=r"bad\.txt, line 2"):
        list(read(path))


def test_a_full_result_proves() -> None:
    verdict = compare(TOTALS, [], [], all_of("1", "2"))
    assert (verdict.holds, verdict.money) == (True, Decimal("100.77"))


def test_a_refused_customer_has_a_dead_letter_and_no_entry() -> None:
    found = [each for each in all_of("1", "2") if (each.kind, each.customer) != ("accounting entry", "2")]
    assert compare(TOTALS, ["2"], ["2"], found).holds
    assert not compare(TOTALS, ["2"], [], found).holds
    assert not compare(TOTALS, ["2"], ["2", "2"], found).holds
    assert not compare(TOTALS, ["2"], ["2"], all_of("1", "2")).holds


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_missing_or_doubled_breaks_the_proof(kind: str) -> None:
    found = all_of("1", "2")
    one = next(each for each in found if each.kind == kind)
    lost = compare(TOTALS, [], [], [each for each in found if each is not one])
    assert (lost.holds, list(lost.lost)) == (False, [f"{kind} of 1"])
    doubled = compare(TOTALS, [], [], [*found, one])
    assert (doubled.holds, list(doubled.doubled)) == (False, [f"{kind} of 1"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_amount_anywhere_breaks_the_proof(kind: str) -> None:
    found = [
        Found(each.kind, each.customer, Decimal("0.01")) if each.kind == kind and each.customer == "1" else each
        for each in all_of("1", "2")
    ]
    assert not compare(TOTALS, [], [], found).holds


def test_what_nobody_asked_for_breaks_the_proof() -> None:
    extra: Sequence[Found] = [*all_of("1", "2"), Found("mail", "3")]
    assert list(compare(TOTALS, [], [], extra).wrong) == ["mail of 3: nobody asked for it"]


def test_the_accounting_service_keeps_one_entry_per_key_and_its_faults_repeat() -> None:
    answers: list[list[int]] = []
    for _ in range(2):
        ledger = Ledger(refused=frozenset({"9"}))
        entry = {"customer": "1", "total": "1"}
        answers += [[ledger.post(f"k{n}", entry)[0] for _ in range(3)] for n in range(200)]
        assert ledger.post("k", {"customer": "9"})[0] == 422
        numbers = [entry["entry"] for entry in ledger.entries.values()]
        assert sorted(numbers) == list(range(1, len(numbers) + 1))
    assert answers[:200] == answers[200:]
    assert {status for tries in answers for status in tries} == {200, 201, 429, 503}


def test_the_total_of_a_pdf_is_read_from_its_page() -> None:
    purchases = (Purchase(1, "1", date(1997, 1, 2), 3, Decimal("1234.50")),)
    assert pdf_total(draw(Statement(StatementId("1", date(1997, 1, 1)), purchases))) == Decimal("1234.50")

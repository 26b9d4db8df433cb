"""The proof: what must be there, computed from the input file alone, against what is there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

KINDS: Final = ("statement", "PDF", "mail", "accounting entry")


@dataclass(frozen=True, slots=True)
class Found:
    """What one place holds for one customer; `total` is None where the place does not state it."""

    kind: str
    customer: str
    total: Decimal | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """`lost` and `doubled` count effects; `wrong` lists what is neither."""

    expected: int
    found: int
    lost: Sequence[str]
    doubled: Sequence[str]
    wrong: Sequence[str]
    money: Decimal
    owed: Decimal

    @property
    def holds(self) -> bool:
        return not (self.lost or self.doubled or self.wrong) and self.money == self.owed


def compare(
    totals: Mapping[str, Decimal], refused: Iterable[str], dead: Iterable[str], found: Sequence[Found]
) -> Verdict:
    """`totals` are the customers' own, `refused` the customers whom accounting refuses, `dead` the customers with a
    dead letter of accounting's job. Exactly one effect of each kind, except no entry for the refused."""
    refused = set(refused)
    must = Counter((kind, customer) for customer in totals for kind in KINDS)
    must -= Counter(("accounting entry", customer) for customer in refused)
    must += Counter(("dead letter", customer) for customer in refused)
    have = Counter((each.kind, each.customer) for each in found)
    have += Counter(("dead letter", customer) for customer in dead)
    lost = [f"{kind} of {customer}" for (kind, customer) in must - have]
    more = have - must
    return Verdict(
        expected=must.total(),
        found=have.total(),
        lost=lost,
        doubled=[f"{kind} of {customer}" for (kind, customer) in more if (kind, customer) in must],
        wrong=[
            *(
                f"{kind} of {customer}: nobody asked for it"
                for (kind, customer) in more
                if (kind, customer) not in must
            ),
            *(
                f"{each.kind} of {each.customer}: {each.total} and not {totals.get(each.customer)}"
                for each in found
                if each.total is not None and each.total != totals.get(each.customer)
            ),
        ],
        money=sum((each.total or Decimal(0) for each in found if each.kind == "statement"), Decimal(0)),
        owed=sum(totals.values(), Decimal(0)),
    )

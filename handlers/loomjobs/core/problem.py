"""A finding about the declarations: where it is, what is wrong, what to do."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Literal

from loomjobs.core.errors import DeclarationError, NotAvailableYet

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding. `where` names the job, queue or file; `cure` is an instruction the reader can carry out."""

    where: str
    what: str
    cure: str
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        return f"{self.where}: {self.what}. {self.cure}".rstrip()


def refuse(problems: Sequence[Problem]) -> None:
    """Raise one DeclarationError with every problem, or return when there is none."""
    if problems:
        pending = all(problem.what.endswith(_PENDING) for problem in problems)
        raise (NotAvailableYet if pending else DeclarationError)(problems)


def not_available(option: str, *, where: str, cure: str) -> NotAvailableYet:
    """The refusal of an option that a later release fills; it is never silently ignored."""
    return NotAvailableYet([pending(option, where=where, cure=cure)])


def pending(option: str, *, where: str, cure: str) -> Problem:
    """The finding behind `not_available`, for callers that collect several."""
    return Problem(where, f"{option} {_PENDING}", cure)


def nearest(word: str, known: Iterable[str]) -> str:
    """`Did you mean x? ` for a misspelt name, or nothing."""
    match = get_close_matches(word, list(known), n=1)
    return f"Did you mean {match[0]}? " if match else ""


_PENDING = "is not available yet"

"""The command line shows no sensitive value: not of a run, nor of a payload that it refuses."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

import pytest

from loomjobs import JobContext, Permanent, Sensitive
from loomjobs.cli import listing, trying
from loomjobs.cli.main import main
from loomjobs.core.catalogue import Catalogue
from tests.core.catalogue_fixture import catalogue, declare


@dataclass(frozen=True)
class Card:
    id: str
    number: Annotated[str, Sensitive()]


def pay(card: Card, ctx: JobContext) -> None:
    """Pay."""
    raise Permanent(f"refused {card.number}")


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Catalogue:
    made = catalogue(declare("cards.pay", function=pay, key="id"))
    for module in (listing, trying):
        monkeypatch.setattr(module, "catalogue", lambda: made)
    return made


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("number", ["4111-2222", {"4111-2222": 1}, ["4111-2222"]])
def test_try_shows_no_sensitive_value(capsys: pytest.CaptureFixture[str], number: object) -> None:
    main(["try", "cards.pay", json.dumps({"id": "c1", "number": number})])
    shown = capsys.readouterr()
    assert "<number>" in shown.out or "$.number: Expected `str`" in shown.err
    assert "4111" not in shown.out + shown.err


@pytest.mark.usefixtures("known")
def test_show_says_which_fields_are_sensitive(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "cards.pay"]) == 0
    assert "(sensitive)" in capsys.readouterr().out

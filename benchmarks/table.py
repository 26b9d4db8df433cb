"""One thing measured, of ours and of peers in the same rounds: as the record that is kept, and as text."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Samples: TypeAlias = Mapping[str, Sequence[float]]
"""By variant, one value for each round."""
_Triples: TypeAlias = dict[str, list[float]]


@dataclass(frozen=True, kw_only=True)
class Table:
    """`measure` says what of and in which unit. Ratios are of ours to each peer, round by round."""

    measure: str
    ours: Samples
    peers: Samples

    @staticmethod
    def of(measure: str | None, samples: Samples) -> Table:
        """Ours are the variants that are named so."""
        ours = {name: values for name, values in samples.items() if name.startswith("Loomjobs")}
        peers = {name: values for name, values in samples.items() if name not in ours}
        return Table(measure=" ".join((measure or "").split()), ours=ours, peers=peers)

    def record(self) -> dict[str, object]:
        """Each figure is minimum, median, maximum."""
        return {
            "measure": self.measure,
            "ours": _spreads(self.ours),
            "peers": _spreads(self.peers),
            "ratios": {name: self._ratios(values) for name, values in self.ours.items()},
        }

    def text(self) -> str:
        return "\n".join([self.measure, *self._lines()])

    def _lines(self) -> Iterator[str]:
        for name, values in self.peers.items():
            yield f"  {name:<56}{_text(_spread(values))}"
        for name, values in self.ours.items():
            yield f"  {name:<56}{_text(_spread(values))}"
            for peer, ratio in self._ratios(values).items():
                yield f"    x {peer:<52}{_text(ratio)}"

    def _ratios(self, values: Sequence[float]) -> _Triples:
        return {
            peer: _spread([value / other for value, other in zip(values, others, strict=True)])
            for peer, others in self.peers.items()
        }


def _spreads(samples: Samples) -> _Triples:
    return {name: _spread(values) for name, values in samples.items()}


def _spread(values: Sequence[float]) -> list[float]:
    return [round(each, 3) for each in (min(values), statistics.median(values), max(values))]


def _text(figures: Sequence[float]) -> str:
    return " / ".join(f"{each:.0f}" if each >= 1000 else f"{each:.3g}" for each in figures)

"""Every source of chance of a run: each decision is a numbered choice with a reason.

A run is determined by its seed and by the choices that a replay file or an explorer has set.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Choices"]

_FINE = 1000
"""How many different durations a span of time has."""


@dataclass(slots=True)
class Choices:
    """Decides what the world leaves open."""

    seed: int
    """Start of the generator that decides what `fixed` does not name."""
    fixed: Mapping[int, int] = field(default_factory=dict)
    """Number of a choice -> what it is."""
    made: list[tuple[str, int, int]] = field(default_factory=list)
    """Reason, number of possibilities and outcome of each choice so far."""
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def choose(self, possibilities: int, why: str) -> int:
        """Return one of ``range(possibilities)``.

        Raises
        ------
        ValueError
            When there is no reason or nothing to choose from.
        """
        if not why or possibilities < 1:
            raise ValueError(f"{possibilities} possibilities for {why!r}")
        # Drawn also where it is fixed: what follows stays as it was.
        drawn = self._random.randrange(possibilities)
        chosen = self.fixed.get(len(self.made), drawn) % possibilities
        self.made.append((why, possibilities, chosen))
        return chosen

    def seconds(self, least: float, most: float, why: str) -> float:
        """Return a duration between two bounds, in seconds."""
        return least + (most - least) * self.choose(_FINE, why) / _FINE

    def likely(self, share: float, why: str) -> bool:
        """Return True in a share of the cases, from 0 to 1; without a choice at both ends."""
        return share >= 1 or (share > 0 and self.choose(_FINE, why) < share * _FINE)

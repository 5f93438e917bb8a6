"""Every source of chance of a run: each decision is a numbered choice with a reason.

A run is determined by its seed.
"""

import random
from dataclasses import dataclass, field

__all__ = ["Choices"]

_FINE = 1000
"""How many different durations a span of time has."""


@dataclass(slots=True)
class Choices:
    """Decides what the world leaves open."""

    seed: int
    """Start of the generator."""
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
        chosen = self._random.randrange(possibilities)
        self.made.append((why, possibilities, chosen))
        return chosen

    def seconds(self, least: float, most: float, why: str) -> float:
        """Return a duration between two bounds, in seconds."""
        return least + (most - least) * self.choose(_FINE, why) / _FINE

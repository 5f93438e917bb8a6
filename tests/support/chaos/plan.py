"""The plan of a chaos run: the actions of a seed.

It depends on the seed alone, never on what the cluster does, so that a seed reproduces it.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

__all__ = [
    "BROKEN",
    "DOMAINS",
    "NAMES",
    "NODES",
    "REPOS",
    "SHORT",
    "SHORT_SEED",
    "TAGS",
    "VERBS",
    "ZONE",
    "ChaosAction",
    "is_broken",
    "plan",
]

NAMES = ("one", "two", "three", "four", "five")
"""Names of Containers; each is created and deleted many times."""
REPOS = ("acme/shop", "acme/blog")
"""Repositories."""
TAGS = ("v1", "v2", "v3")
"""Releases that run, the oldest first."""
BROKEN = "broken"
"""A release whose container exits with an error at start; older than all others."""
NODES = ("left", "right")
"""Simulated nodes."""
ZONE = "customer.test"
"""Zone of the custom domains."""
DOMAINS = (f"shop.{ZONE}", f"blog.{ZONE}")
"""Custom domains; fewer than names, so that Containers want the same one."""
SHORT = 90
"""Actions of the short run."""
SHORT_SEED = 107
"""Seed of the short run, in which every kind of action is done."""
_VALUES = ("a", "b", "c")
_PAUSES = (0.0, 0.05, 0.3, 1.0, 2.0)
_ON_NODES = {"drain", "uncordon", "lose_node", "find_node"}
_ON_DOMAINS = {"lose_record", "find_record", "drop_domain", "make_domain"}
_ON_REPOS = {"release"}


@dataclass(frozen=True)
class ChaosAction:
    """One action."""

    verb: str
    """The kind of action; a method of `ChaosRun`."""
    name: str
    """Container, node, custom domain or repository."""
    value: dict[str, Any]
    """Arguments of the action."""
    pause: float
    """Seconds until the next one."""

    @property
    def text(self) -> str:
        """The action in one line."""
        more = ", ".join(f"{key}={value}" for key, value in sorted(self.value.items()))
        return f"{self.verb} {self.name} {more}".rstrip()


_WEIGHTS = {
    "create": 10,
    "relaunch": 10,
    "stop": 4,
    "start": 5,
    "delete": 3,
    "accept": 6,
    "cancel": 3,
    "replace": 4,
    "follow": 4,
    "new_value": 2,
    "apply": 10,
    "edit": 10,
    "remove": 2,
    "drop_secret": 1,
    "make_secret": 2,
    "drop_domain": 1,
    "make_domain": 2,
    "lose_record": 1,
    "find_record": 2,
    "release": 3,
    "kill_operator": 5,
    "fail_pod": 4,
    "delete_pod": 3,
    "drain": 2,
    "uncordon": 3,
    "lose_node": 1,
    "find_node": 2,
    "misbehave": 2,
    "behave": 3,
    "restart_server": 2,
}
"""How often each action is chosen."""
VERBS = frozenset(_WEIGHTS)
"""All kinds of actions."""


def is_broken(tag: str) -> bool:
    """Return whether the container of a release exits with an error at start."""
    return tag.endswith(BROKEN)


def plan(seed: int) -> Iterator[ChaosAction]:
    """Yield the actions of a seed, endlessly.

    Parameters
    ----------
    seed
        Two runs with one seed have the same actions in the same order.
    """
    chance = random.Random(seed)
    verbs, weights = tuple(_WEIGHTS), tuple(_WEIGHTS.values())
    for name in NAMES:
        # At first there is nothing for other actions to act on.
        verb = chance.choice(("create", "apply"))
        yield ChaosAction(verb, name, _value(verb, chance), chance.choice(_PAUSES))
    while True:
        verb = chance.choices(verbs, weights)[0]
        name = chance.choice(_places(verb))
        yield ChaosAction(verb, name, _value(verb, chance), chance.choice(_PAUSES))


def _places(verb: str) -> tuple[str, ...]:
    """Return the possible targets of an action."""
    if verb in _ON_NODES:
        return NODES
    if verb in _ON_DOMAINS:
        return DOMAINS
    return REPOS if verb in _ON_REPOS else NAMES


def _value(verb: str, chance: random.Random) -> dict[str, Any]:
    """Choose the arguments of an action."""
    every = _fields(chance)
    text, repo, debug = every["text"], chance.choice(REPOS), {"debug": chance.random() < 0.2}
    state = chance.choice(("Running", "Running", "Running", "Stopped"))
    other = chance.choice((None, None, None, *NAMES))
    which, broken = {"which": chance.randrange(100)}, chance.random() < 0.2
    auto = chance.random() < 0.5
    apply = {"repo": repo, "state": state, "replaces": other, **every}
    edited = {**every, **debug, "state": state, "autoUpdate": auto}
    values: dict[str, dict[str, Any]] = {
        "create": {"repo": repo, **every, **debug},
        "replace": {"repo": repo, **every, "old": chance.choice(NAMES)},
        "relaunch": _some({**every, **debug}, chance),
        "follow": {"auto": auto},
        "new_value": {"value": text},
        "apply": apply,
        "edit": _some(edited, chance),
        "release": {"broken": broken},
        "misbehave": {"share": chance.choice((0.05, 0.2))},
        "kill_operator": which,
        "fail_pod": which,
        "delete_pod": which,
    }
    return values.get(verb, {})


def _fields(chance: random.Random) -> dict[str, Any]:
    """Choose fields that users can set through both interfaces."""
    return {
        "tag": chance.choice((*TAGS, *TAGS, BROKEN)),
        "text": chance.choice(_VALUES),
        "staging": chance.random() < 0.4,
        "domain": chance.choice((None, None, None, *DOMAINS)),
        "secrets": chance.choice((("TOKEN",), ("TOKEN",), ("TOKEN", "SPARE"), ("SPARE",))),
    }


def _some(values: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """Choose up to two of several values."""
    keys = chance.sample(sorted(values), chance.randint(0, 2))
    return {key: values[key] for key in sorted(keys)}

"""Configuration files with random networks, and the targets that each container may reach.

`may_reach_public` and its siblings are the oracle of the packet matrix: written from the manual of
the format ("Networks"), independently of the operator and the guest.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["ALLOWED_NAME", "EGRESSES", "GeneratedFile", "generate"]

EGRESSES = ("closed", "allowlist", "open")
ALLOWED_NAME = "allowed.example"
"""The only host of every allowlist."""
PORT = 8080
"""Port of the first container; in a shared namespace each further one takes the next port."""


@dataclass(frozen=True, slots=True)
class GeneratedFile:
    """The networks of a file."""

    networks: dict[str, str]
    """Name -> egress."""
    containers: dict[str, tuple[str, ...]]
    """Name -> networks; empty = no connectivity."""
    target: str
    """Target container of the shim."""
    old: bool = False
    """Whether the file's version predates networks: one namespace for all, with open egress."""

    def port(self, container: str) -> int:
        """Return the port that a container listens on."""
        return PORT + (list(self.containers).index(container) if self.old else 0)

    def shared(self, one: str, other: str) -> int:
        """Return the number of networks that two containers share."""
        return len(set(self.containers[one]) & set(self.containers[other]))

    def egress(self, container: str) -> str:
        """Return the egress of a container: open, allowlist, or closed."""
        if self.old:
            return "open"
        found = {self.networks[name] for name in self.containers[container]}
        return next((each for each in ("open", "allowlist") if each in found), "closed")

    def may_reach_public(self, container: str, *, allowed: bool) -> bool:
        """Return whether a container may reach a public address, of the allowed host or another."""
        egress = self.egress(container)
        return egress == "open" or (egress == "allowlist" and allowed)

    def has_names(self, container: str) -> bool:
        """Return whether a container can query DNS at all: only with a network."""
        return self.old or bool(self.containers[container]) or container == self.target

    def entries(self, image: str) -> Iterator[dict[str, Any]]:
        """Yield the containers as the file has them."""
        for name, networks in self.containers.items():
            entry: dict[str, Any] = {
                "name": name,
                "image": image,
                "command": ["serve", "", str(self.port(name))],
            }
            if networks and not self.old:
                entry["networks"] = list(networks)
            yield entry

    def sections(self) -> dict[str, Any]:
        """Return the keys of the file other than its containers."""
        shim = {"upstream-port": PORT, "paths": ["/*"], "upstream-container": self.target}
        if self.old:
            first = next(iter(self.containers))
            return {"cvm-version": "0.9.0", "shim": {**shim, "upstream-container": first}}
        networks: dict[str, Any] = {
            name: {
                "closed": None,
                "open": {"egress": "open"},
                "allowlist": {"egress": "allowlist", "allow": [ALLOWED_NAME]},
            }[egress]
            for name, egress in self.networks.items()
        }
        return {"shim": shim, **({"networks": networks} if networks else {})}


def generate(seed: int) -> GeneratedFile:
    """Generate a file; every tenth predates networks."""
    chance = random.Random(seed)
    names = [f"c{number}" for number in range(chance.randint(2, 5))]
    if seed % 10 == 2:
        return GeneratedFile({}, dict.fromkeys(names, ()), names[0], old=True)
    networks = {f"n{number}": chance.choice(EGRESSES) for number in range(chance.randint(1, 4))}
    containers = {}
    for name in names:
        closed = [each for each, egress in networks.items() if egress == "closed"]
        others = [each for each, egress in networks.items() if egress != "closed"]
        chosen = [each for each in closed if chance.random() < 0.5]
        if others and chance.random() < 0.7:
            chosen.append(chance.choice(others))
        containers[name] = tuple(chosen)
    used = {name for chosen in containers.values() for name in chosen}
    kept = {name: egress for name, egress in networks.items() if name in used}
    return GeneratedFile(kept, containers, chance.choice(names))

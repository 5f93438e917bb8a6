"""Which rights the shipped roles give, and which of them an audit log shows in use.

Pure: reads texts, and asks no cluster.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from typing_extensions import override

from tests.support.cluster.accounts import SYSTEM
from tests.support.cluster.admission_policies import MANIFESTS

__all__ = ["FORBIDDEN", "ORGANIZATIONS", "Right", "Use", "granted", "named", "uses"]

FORBIDDEN = 403
ACCOUNTS = ("cloister-operator", "cloister-api")
EVERYWHERE = "everywhere"
ORGANIZATIONS = "organizations"
"""Place of the rights that the operator binds in each organization's namespace."""


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One verb on one resource."""

    account: str
    place: str
    """`EVERYWHERE`, `ORGANIZATIONS`, or a namespace."""
    resource: str
    """``plural/subresource.group`` as docs/accounts.md writes it."""
    verb: str

    @override
    def __str__(self) -> str:
        """Return it in one line."""
        return f"{self.account} {self.place}: {self.verb} {self.resource}"


@dataclass(frozen=True, slots=True)
class Use:
    """One request of an account, as the API server recorded it."""

    account: str
    namespace: str
    resource: str
    verb: str
    name: str
    code: int
    why: str
    """What the authorizer said."""

    def is_of(self, right: Right) -> bool:
        """Return whether a right permits it."""
        if (self.account, self.resource, self.verb) != (right.account, right.resource, right.verb):
            return False
        if right.place == ORGANIZATIONS:
            return self.namespace.startswith("org-")
        return right.place in {EVERYWHERE, self.namespace}


def granted() -> set[Right]:
    """Read the shipped roles."""
    documents = [
        document
        for account in ACCOUNTS
        for document in yaml.safe_load_all(
            (MANIFESTS / "roles" / f"{account.removeprefix('cloister-')}.yaml").read_text()
        )
        if document["kind"].endswith("Role")
    ]
    found: set[Right] = set()
    for document in documents:
        name: str = document["metadata"]["name"]
        account = "cloister-operator" if name.startswith("cloister-operator") else "cloister-api"
        place = document["metadata"].get("namespace", EVERYWHERE)
        if name.endswith("-organization"):
            place = ORGANIZATIONS
        found.update(_of_rules(account, place, document["rules"]))
    return found


def _of_rules(account: str, place: str, rules: Iterable[dict[str, Any]]) -> Iterator[Right]:
    for rule in rules:
        for group in rule["apiGroups"]:
            for plural in rule["resources"]:
                for verb in rule["verbs"]:
                    yield Right(account, place, _named_resource(plural, group), verb)


def _named_resource(plural: str, group: str) -> str:
    return f"{plural}.{group}" if group else plural


def uses(log: Path) -> list[Use]:
    """Read an audit log: the requests of both accounts about resources."""
    found = []
    user = f"system:serviceaccount:{SYSTEM}:"
    for line in log.read_text().splitlines():
        event = json.loads(line)
        name: str = event["user"]["username"]
        about = event.get("objectRef")
        if about is None or name.removeprefix(user) not in ACCOUNTS:
            continue
        plural = "/".join(filter(None, (about["resource"], about.get("subresource"))))
        found.append(
            Use(
                account=name.removeprefix(user),
                namespace=about.get("namespace", ""),
                resource=_named_resource(plural, about.get("apiGroup", "")),
                verb=event["verb"],
                name=about.get("name", ""),
                code=event.get("responseStatus", {}).get("code", 0),
                why=event.get("annotations", {}).get("authorization.k8s.io/reason", ""),
            )
        )
    return found


def named(page: Path) -> dict[Right, str]:
    """Read the table of docs/accounts.md with rights that are seldom used: right -> why it is."""
    found: dict[Right, str] = {}
    for line in page.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != COLUMNS or not cells[0].startswith("`cloister-"):
            continue
        account, place, resources, verbs, why = cells
        for resource in resources.split(", "):
            for verb in verbs.split(", "):
                right = Right(*(each.strip("`") for each in (account, place, resource, verb)))
                found[right] = why
    return found


COLUMNS = 5
"""Columns of that table; the one of all rights has four."""

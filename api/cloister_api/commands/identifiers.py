"""``cloister org restore-ids``: restored objects are the records of the API that they were.

A restore creates objects again, with uids of their own. What knew them by the uid of before (admin
keys, run time, series of utilization, clients) goes on once that uid is in status.id. It lies in
status because whoever may edit an object writes its metadata.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from cloister_clients.kube import KubeClient
from cloister_clients.kube.kinds import of
from cloister_crds.kinds import (
    Container,
    Deployment,
    Domain,
    Organization,
    RegistryCredential,
    Secret,
    SSHKey,
)
from cloister_crds.kinds.meta import GROUP, Record

__all__ = ["RECORDS", "read_backup", "restore_identifiers"]

RECORDS: tuple[type[Record], ...] = (
    Organization,
    Container,
    Deployment,
    Secret,
    SSHKey,
    RegistryCredential,
    Domain,
)
"""The kinds that are records of the API, Organizations first."""
Place = tuple[str, str]
"""Namespace, empty for Organizations, and name."""


def read_backup(file: Path) -> dict[type[Record], dict[Place, str]]:
    """Return the identifiers in a backup, by kind and place.

    Parameters
    ----------
    file
        List in JSON, as ``kubectl get … -A -o json`` writes it.

    Raises
    ------
    ClickException
        When it is no such list.
    """
    try:
        items = json.loads(file.read_text(encoding="utf-8"))["items"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise click.ClickException(
            f"{file} is not a list of objects in JSON; write it with kubectl get "
            "org,ctr,cdep,csec,sshkeys,registrycredentials,cdom -A -o json"
        ) from error
    kinds = {kind.INFO.kind: kind for kind in RECORDS}
    found: dict[type[Record], dict[Place, str]] = {kind: {} for kind in RECORDS}
    for item in items:
        kind = kinds.get(item.get("kind", ""))
        if kind is None or not item.get("apiVersion", "").startswith(f"{GROUP}/"):
            continue
        try:
            record = kind.read(item)
        except ValidationError as error:
            name = item.get("metadata", {}).get("name")
            raise click.ClickException(f"{file}: {kind.INFO.kind} {name}: {error}") from error
        found[kind][place_of(record)] = record.identifier
    return found


async def restore_identifiers(
    client: KubeClient, backup: Mapping[type[Record], Mapping[Place, str]]
) -> tuple[int, list[str]]:
    """Write the identifiers of a backup into the status of the objects that were restored.

    Parameters
    ----------
    client
        Client of somebody who may change admission policies.
    backup
        Identifiers by kind and place.

    Returns
    -------
    tuple
        How many were written, and what was refused, as sentences. Running it again is harmless.

    Raises
    ------
    KubeError
        When the cluster refuses or does not respond.
    """
    written, refused = 0, []
    for kind, identifiers in backup.items():
        if not identifiers:
            continue
        live = [kind.read(item) for item in (await client.list(of(kind))).items]
        holders = {name: record for record in live for name in names_of(record)}
        places = {place_of(record): record for record in live}
        for place, identifier in identifiers.items():
            problem = refusal(places.get(place), identifier, holders.get(identifier))
            if problem:
                refused.append(f"{kind.INFO.kind} {'/'.join(filter(None, place))}: {problem}")
            elif places[place].identifier != identifier:
                await write(client, places[place], identifier)
                holders[identifier] = places[place]
                written += 1
    return written, refused


def refusal(record: Record | None, identifier: str, holder: Record | None) -> str:
    """Return why an object does not get an identifier; empty = it gets or has it."""
    if record is None:
        return "it is not in the cluster; apply it first"
    if record.identifier == identifier:
        return ""
    if record.status.id is not None:
        return f"its status.id is {record.status.id} already, and never changes"
    if holder is not None:
        where = "/".join(filter(None, place_of(holder)))
        return f"{identifier} belongs to {where}; every identifier belongs to one object"
    return ""


async def write(client: KubeClient, record: Record, identifier: str) -> None:
    """Write status.id, unless the object has changed since it was read."""
    meta = record.metadata
    patch: dict[str, Any] = {
        "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
        "status": {"id": identifier},
    }
    await client.merge_patch(
        of(type(record)), meta.name, patch, meta.namespace, subresource="status"
    )


def place_of(record: Record) -> Place:
    """Return the place of an object."""
    return record.metadata.namespace or "", record.metadata.name


def names_of(record: Record) -> set[str]:
    """Return everything that identifies an object: also the uid of one that has a status.id."""
    return {record.metadata.uid, record.identifier}

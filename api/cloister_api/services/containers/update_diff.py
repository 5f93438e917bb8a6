"""What an update of a container changes, compared with what serves."""

import asyncio
from base64 import b64decode
from typing import Any

from cloister_api.cache import CachedContainer
from cloister_api.records.container import shown_state
from cloister_api.records.container_status import candidate_of
from cloister_api.schemas.comparison_responses import (
    ChangeResponse,
    ComparedEnclaveResponse,
    UpdateDiffResponse,
)
from cloister_api.services.infrastructure import Infrastructure
from cloister_clients.kube import NotFound
from cloister_clients.kube.kinds import CONFIG_MAP, of
from cloister_crds.config import STORED, parse
from cloister_crds.kinds import Enclave
from cloister_crds.measurement import published
from cloister_crds.measurement.difference import Difference, Side, compare, file_tree, markdown
from cloister_crds.measurement.enclave import FILE_ENTRY
from cloister_crds.names import config_map_name

NOTHING_SERVES = "nothing serves, so that there is nothing to compare the update with"
NOT_MADE = "the update has no enclave: wait until it starts"
GONE = "an enclave of the two is gone; read it again"
ANYTHING = ("repo", "tag", "commit", "relaunch")
"""Fields of a request that say which release it is for, or only that it was made again."""


class UpdateDiffs:
    """Compares updates with what serves."""

    def __init__(self, base: Infrastructure) -> None:
        self._client = base.client

    async def of(self, held: CachedContainer) -> UpdateDiffResponse:
        """Return what the update of a container changes.

        The Enclaves and what they publish are read from the server: they are immutable, and too
        rarely requested to be cached.

        Raises
        ------
        KubeError
            When the cluster does not respond.
        """
        container = held.container
        if shown_state(container).update is None:
            return UpdateDiffResponse(has_update=False)
        names = container.status.active_enclave, candidate_of(container.status)
        serving, candidate = await asyncio.gather(*(self._enclave(held, name) for name in names))
        shown = UpdateDiffResponse(
            has_update=True, serving=compared(serving), candidate=compared(candidate)
        )
        if serving is None or candidate is None:
            reason = GONE
            if not all(names):
                reason = NOT_MADE if names[0] else NOTHING_SERVES
            return shown.model_copy(update={"reason": reason})
        sides = await asyncio.gather(self._side(serving), self._side(candidate))
        found = await asyncio.to_thread(compare, *sides)
        return shown.model_copy(update=await asyncio.to_thread(described, found))

    async def _enclave(self, held: CachedContainer, name: str) -> Enclave | None:
        """Return an Enclave of a container; None if it has none of the name."""
        if not name:
            return None
        meta = held.container.metadata
        try:
            found = Enclave.read(await self._client.get(of(Enclave), name, meta.namespace))
        except NotFound:
            return None
        return found if found.spec.container.uid == meta.uid else None

    async def _side(self, enclave: Enclave) -> Side:
        """Return what an enclave is made of, as far as it is published."""
        meta, spec = enclave.metadata, enclave.spec
        request = spec.request.wire()
        side = {
            "release": {
                "repo": spec.repo,
                "tag": spec.tag,
                "commit": spec.commit,
                "configFile": spec.config_file,
                "configDigest": spec.config_digest,
            },
            "request": {
                "host": spec.host,
                **{name: value for name, value in request.items() if name not in ANYTHING},
            },
        }
        try:
            kept = await self._client.get(CONFIG_MAP, config_map_name(meta.name), meta.namespace)
        except NotFound:
            return Side(**side)
        owners = {each["uid"] for each in kept["metadata"].get("ownerReferences") or ()}
        if meta.uid not in owners:
            return Side(**side)
        publication = published(kept.get("data") or {})
        raw = b64decode((kept.get("binaryData") or {}).get(FILE_ENTRY, ""))
        return Side(
            **side,
            file=await asyncio.to_thread(tree_of, raw),
            measurement=publication.document if publication is not None else {},
        )


def tree_of(raw: bytes) -> dict[str, Any]:
    """Return the part of a file; an empty one if this release cannot read it."""
    config = parse(raw, rules=STORED).config
    return file_tree(config) if config is not None else {}


def compared(enclave: Enclave | None) -> ComparedEnclaveResponse | None:
    """Return the record of an Enclave of a comparison; None stays None."""
    if enclave is None:
        return None
    spec = enclave.spec
    return ComparedEnclaveResponse(enclave=enclave.metadata.name, tag=spec.tag, commit=spec.commit)


def described(found: Difference) -> dict[str, Any]:
    """Return the fields of a response that hold a difference."""
    return {
        "changes": [
            ChangeResponse.model_validate(
                {
                    "part": each.part,
                    "field": each.field,
                    "before": each.before,
                    "after": each.after,
                }
            )
            for each in found.changes
        ],
        "more_changes": found.more,
        "not_compared": list(found.not_compared),
        "markdown": markdown(found),
    }

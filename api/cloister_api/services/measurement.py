"""Measurements of active enclaves, as they were published when the enclaves were created."""

from cloister_api.cache import CachedContainer
from cloister_api.errors import ApiError
from cloister_api.schemas.container_responses import MeasuredInitdata, MeasurementResponse
from cloister_clients.kube import KubeClient, NotFound
from cloister_clients.kube.kinds import CONFIG_MAP, of
from cloister_crds.kinds import Enclave
from cloister_crds.measurement import Publication, published
from cloister_crds.names import config_map_name

__all__ = ["MeasurementReader"]


class MeasurementReader:
    """Reads measurements."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def of(self, held: CachedContainer) -> MeasurementResponse:
        """Return the measurement of the active enclave of a container.

        The two objects are read from the server: both are immutable and too rarely requested to be
        cached.

        Raises
        ------
        ApiError
            404 without an active enclave, or when it is older than published measurements.
        KubeError
            When the cluster does not respond.
        """
        container = held.container
        name, namespace = container.status.active_enclave, container.metadata.namespace
        if not name:
            raise absent("no enclave is active; a measurement is published with each enclave")
        try:
            enclave = Enclave.read(await self._client.get(of(Enclave), name, namespace))
            kept = await self._client.get(CONFIG_MAP, config_map_name(name), namespace)
        except NotFound as gone:
            raise absent("the active enclave is gone; try again in a moment") from gone
        owners = {each["uid"] for each in kept["metadata"].get("ownerReferences") or ()}
        publication = published(kept.get("data") or {})
        ours = enclave.spec.container.uid == container.metadata.uid
        if publication is None or not ours or enclave.metadata.uid not in owners:
            raise absent(
                "the enclave was created before measurements were published; relaunch the container"
            )
        return measurement_record(enclave, publication)


def absent(reason: str) -> ApiError:
    """Build a 404 with the reason: the container itself exists."""
    return ApiError(404, "NOT_FOUND", f"measurement not found: {reason}")


def measurement_record(enclave: Enclave, publication: Publication) -> MeasurementResponse:
    """Return a measurement, and what a client needs to recompute it (docs/measurement.md)."""
    spec, initdata = enclave.spec, publication.initdata
    measured = None
    if initdata is not None:
        measured = MeasuredInitdata(digest=initdata.digest, toml=initdata.text.decode())
    return MeasurementResponse(
        repo=spec.repo,
        tag=spec.tag,
        commit=spec.commit,
        config_file=spec.config_file,
        digest=publication.digest,
        document=publication.document,
        documents=publication.documents,
        initdata=measured,
    )

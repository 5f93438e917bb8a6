"""SSH keys of an organization, for its debug containers."""

from collections.abc import Iterable

from pydantic import ValidationError
from typing_extensions import override

from cloister_api.auth.authenticator import Principal
from cloister_api.errors import bad_request, broken_rule, conflict
from cloister_api.records.resources import key_record
from cloister_api.schemas.resources import CreateSshKeyRequest, SshKeyResponse
from cloister_api.services.containers.reader import ContainerReader
from cloister_api.services.infrastructure import Infrastructure
from cloister_api.services.preconditions import (
    CreateRequest,
    VersionedRecord,
)
from cloister_api.services.quotas import limits_of
from cloister_api.services.resources.named import NamedResources
from cloister_crds.kinds import Container, SSHKey
from cloister_crds.kinds.meta import ObjectMeta
from cloister_crds.kinds.sshkey import SSHKeySpec
from cloister_crds.lifecycle.admission.keys import key_error, named_by


class SSHKeys(NamedResources[SSHKey, SshKeyResponse]):
    """The SSH keys of all organizations."""

    what = "SSH key"

    def __init__(self, base: Infrastructure, reader: ContainerReader) -> None:
        super().__init__(base, reader, base.cache.ssh_keys, key_record)

    @override
    def _uses(self, one: SSHKey, containers: Iterable[Container]) -> Iterable[Container]:
        return named_by(one.metadata.name, containers)

    async def create(
        self, principal: Principal, body: CreateSshKeyRequest, retry_key: str | None
    ) -> VersionedRecord[SshKeyResponse]:
        """Register a key; idempotent for retries of the same request.

        Parameters
        ----------
        retry_key
            Idempotency-Key of the client; None if none was sent.

        Raises
        ------
        ApiError
            409 when the name is taken; 400 when the text is not a supported public key; 403
            when the limit is reached.
        KubeError
            When the cluster refuses or does not respond.
        """
        try:
            spec = SSHKeySpec(public_key=body.public_key.strip())
        except ValidationError as error:
            raise broken_rule("public_key", error) from error
        if (reason := key_error(spec.public_key)) is not None:
            raise bad_request("public_key", f"public_key {reason}")
        request = CreateRequest.of(principal, body.model_dump(), retry_key, "ssh-key.create")
        meta = ObjectMeta(
            name=body.name, namespace=principal.namespace, annotations=request.annotations
        )
        most = limits_of(principal, self._default_limits).ssh_keys
        new = SSHKey(metadata=meta, spec=spec)
        text = f"name: an SSH key named {body.name} exists already; choose another name"
        made = await self._create(
            principal, new, request, field="public_key", most=most, taken=conflict(text)
        )
        return await self._shown(made)

"""Custom domains of an organization: registered and read here, verified by the operator."""

from pydantic import ValidationError

from cloister_api.auth.authenticator import Principal
from cloister_api.errors import (
    ApiError,
    bad_request,
    broken_rule,
    conflict,
    in_use,
    not_found,
    unavailable,
)
from cloister_api.records.resources import domain_record, users_of
from cloister_api.schemas.resources import CreateDomainRequest, DomainResponse
from cloister_api.services.containers.reader import ContainerReader
from cloister_api.services.infrastructure import Infrastructure
from cloister_api.services.preconditions import (
    CreateRequest,
    IdempotentRequests,
    VersionedRecord,
    agreed,
    delete_agreed,
    patch_agreed,
    precondition,
)
from cloister_api.services.quotas import exists, limits_of, require_place
from cloister_clients.kube import AlreadyExists, Invalid
from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Domain
from cloister_crds.kinds.domain import DomainSpec
from cloister_crds.kinds.meta import REQUESTED_AT_ANNOTATION, ObjectMeta
from cloister_crds.lifecycle.names.domains import find_domain, used_by
from cloister_crds.lifecycle.names.hostnames import is_below

DNS_WAIT_SECONDS = 10.0
"""Longest wait until the operator has queried DNS, in seconds."""


class Domains:
    """The custom domains of all organizations."""

    def __init__(self, base: Infrastructure, reader: ContainerReader) -> None:
        self._client, self._cache = base.client, base.cache
        self._reader = reader
        self._idempotency = IdempotentRequests(base)
        self._default_limits = base.installation.default_limits
        self._clock = base.clock
        self._containers_domain = base.installation.containers_domain
        self._write_wait = base.settings.write_wait_seconds

    def all(self, principal: Principal) -> list[DomainResponse]:
        """Return the records of all domains, by name."""
        present = (
            each
            for each in self._cache.domains_of(principal.namespace)
            if each.metadata.deletion_timestamp is None
        )
        ordered = sorted(present, key=lambda each: each.spec.domain)
        return [self._record(principal, each) for each in ordered]

    async def create(
        self, principal: Principal, body: CreateDomainRequest, retry_key: str | None
    ) -> VersionedRecord[DomainResponse]:
        """Register a domain, and return the records that its owner must create.

        Parameters
        ----------
        retry_key
            Idempotency-Key of the client; None if none was sent.

        Raises
        ------
        ApiError
            403 without a domain suffix, or when the limit is reached; 400 for a name outside of it;
            409 when it exists; 503 while its records are not known.
        KubeError
            When the cluster refuses or does not respond.
        """
        host = body.domain
        suffixes = principal.organization.spec.entitlements.domain_suffixes
        if not suffixes:
            raise ApiError(
                403,
                "FORBIDDEN",
                "domain: custom domains need the entitlement domainSuffixes, which the "
                "organization does not have; ask the administrator",
            )
        if is_below(host, self._containers_domain):
            raise bad_request(
                "domain",
                f"domain: {host} is below {self._containers_domain}, whose names are generated; "
                "use a name of a domain of your own",
            )
        if not any(host.endswith(f".{each}") for each in suffixes):
            allowed = ", ".join(f"*.{each}" for each in suffixes)
            raise bad_request("domain", f"domain: {host} is not below one of: {allowed}")
        request = CreateRequest.of(principal, body.model_dump(), retry_key, "domain.create")
        present = self._find(principal, host)
        # One of the usual name is checked below: the cache may show a just deleted one.
        if present is not None and present.metadata.name != host:
            return await self._earlier(principal, present.metadata.name, host, request)
        namespace = principal.namespace
        if await exists(self._client, self._cache.domains, Domain, host, namespace):
            return await self._earlier(principal, host, host, request)
        used = self._cache.domains_of(namespace)
        require_place("domains", len(used), limits_of(principal, self._default_limits).domains)
        try:
            spec = DomainSpec(domain=host)
        except ValidationError as error:
            raise broken_rule("domain", error) from error
        meta = ObjectMeta(name=host, namespace=namespace, annotations=request.annotations)
        try:
            item = await self._client.create(
                of(Domain), Domain(metadata=meta, spec=spec).manifest()
            )
        except AlreadyExists:
            return await self._earlier(principal, host, host, request)
        except Invalid as error:
            raise bad_request("domain", error.message) from error
        return await self._with_dns_records(principal, Domain.read(item))

    async def _with_dns_records(
        self, principal: Principal, made: Domain
    ) -> VersionedRecord[DomainResponse]:
        """Wait until the operator has published the records of a domain, and return it.

        Raises
        ------
        ApiError
            503 when it has not; the same request then finds what this one has registered.
        """
        host = made.spec.domain
        known = await self._cache.domains.until(
            lambda: self._records_are_known(principal, host), within=DNS_WAIT_SECONDS
        )
        if not known:
            raise unavailable(
                f"{host} is registered, and the operator has not published its DNS records yet; "
                "send the same request again to get them"
            )
        return self._recorded(principal, self._find(principal, host) or made)

    async def _earlier(
        self, principal: Principal, name: str, host: str, request: CreateRequest
    ) -> VersionedRecord[DomainResponse]:
        """Return what an earlier attempt of the same create made.

        Raises
        ------
        ApiError
            409 when another request created it.
        """
        made = await self._idempotency.earlier(Domain, name, principal.namespace, request)
        if made is None:
            raise conflict(f"domain: the organization has {host} already")
        return await self._with_dns_records(principal, made)

    async def verify(
        self, principal: Principal, host: str, match: str | None
    ) -> VersionedRecord[DomainResponse]:
        """Trigger the verification by DNS, and return its result.

        Parameters
        ----------
        match
            Header If-Match; None means any version.

        Raises
        ------
        ApiError
            404 when the organization has no such domain, 412 when it has another version.
        KubeError
            When the cluster refuses or does not respond.
        """
        domain = await agreed(self._client, self._present(principal, host), match, "domain")
        stamp = self._clock().isoformat()
        requested = {"annotations": {REQUESTED_AT_ANNOTATION: stamp}}
        patch = {"metadata": {**precondition(domain, match), **requested}}
        await patch_agreed(self._client, domain, patch, match, "domain")

        def is_handled() -> bool:
            found = self._find(principal, host)
            return found is None or found.status.last_handled_request == stamp

        await self._cache.domains.until(is_handled, within=DNS_WAIT_SECONDS)
        return self._recorded(principal, self._present(principal, host))

    async def delete(self, principal: Principal, host: str, match: str | None) -> None:
        """Delete a domain that no container uses.

        Parameters
        ----------
        match
            Header If-Match; None means any version.

        Raises
        ------
        ApiError
            404 when there is none; 409 that names the containers which use it; 412 when it has
            another version.
        KubeError
            When the cluster refuses or does not respond.
        """
        domain = await agreed(self._client, self._present(principal, host), match, "domain")
        held = await self._reader.list_now(principal.namespace)
        users = users_of(used_by(host, (one.container for one in held)))
        if users:
            raise in_use(f"Domain {host}", users)
        uid = domain.metadata.uid
        await delete_agreed(self._client, domain, match, "domain")
        await self._cache.domains.until(
            lambda: self._cache.domains.by_uid(uid) is None, within=self._write_wait
        )

    def _find(self, principal: Principal, host: str) -> Domain | None:
        return find_domain(host, self._cache.domains_of(principal.namespace))

    def _present(self, principal: Principal, host: str) -> Domain:
        """Find a domain.

        Raises
        ------
        ApiError
            404 when there is none.
        """
        found = self._find(principal, host)
        if found is None or found.metadata.deletion_timestamp is not None:
            raise not_found("domain")
        return found

    def _records_are_known(self, principal: Principal, host: str) -> bool:
        found = self._find(principal, host)
        return found is not None and found.status.records is not None

    def _recorded(self, principal: Principal, domain: Domain) -> VersionedRecord[DomainResponse]:
        return VersionedRecord(self._record(principal, domain), domain.metadata.resource_version)

    def _record(self, principal: Principal, domain: Domain) -> DomainResponse:
        held = self._cache.containers_of(principal.namespace)
        users = users_of(used_by(domain.spec.domain, (one.container for one in held)))
        return domain_record(domain, users)

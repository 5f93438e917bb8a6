"""Custom domains of an organization: registered and read here, verified by the operator."""

from collections.abc import Iterable

from pydantic import ValidationError
from typing_extensions import override

from cloister_api.auth.authenticator import Principal
from cloister_api.errors import (
    ApiError,
    bad_request,
    broken_rule,
    conflict,
    not_found,
    unavailable,
)
from cloister_api.records.resources import domain_record
from cloister_api.schemas.resources import CreateDomainRequest, DomainResponse
from cloister_api.services.containers.reader import ContainerReader
from cloister_api.services.infrastructure import Infrastructure
from cloister_api.services.preconditions import (
    CreateRequest,
    VersionedRecord,
    agreed,
    patch_agreed,
    precondition,
)
from cloister_api.services.quotas import limits_of
from cloister_api.services.resources.named import NamedResources
from cloister_crds.kinds import Container, Domain
from cloister_crds.kinds.domain import DomainSpec
from cloister_crds.kinds.meta import REQUESTED_AT_ANNOTATION, ObjectMeta
from cloister_crds.lifecycle.names.domains import find_domain, used_by
from cloister_crds.lifecycle.names.hostnames import is_below

DNS_WAIT_SECONDS = 10.0
"""Longest wait until the operator has queried DNS, in seconds."""


class Domains(NamedResources[Domain, DomainResponse]):
    """The custom domains of all organizations."""

    what = "domain"

    def __init__(self, base: Infrastructure, reader: ContainerReader) -> None:
        super().__init__(base, reader, base.cache.domains, domain_record)
        self._containers_domain = base.installation.containers_domain

    @override
    def _name(self, one: Domain) -> str:
        return one.spec.domain

    @override
    def _uses(self, one: Domain, containers: Iterable[Container]) -> Iterable[Container]:
        return used_by(one.spec.domain, containers)

    @override
    def _named(self, principal: Principal, name: str) -> Domain:
        found = find_domain(name, self._held(principal))
        if found is None:
            raise not_found(self.what)
        return found

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
        taken = conflict(f"domain: the organization has {host} already")
        # One of the usual name is checked below: the cache may show a just deleted one.
        if present is not None and present.metadata.name != host:
            made = await self._idempotency.earlier(
                Domain, present.metadata.name, principal.namespace, request
            )
            if made is None:
                raise taken
            return await self._with_dns_records(principal, made)
        try:
            spec = DomainSpec(domain=host)
        except ValidationError as error:
            raise broken_rule("domain", error) from error
        meta = ObjectMeta(name=host, namespace=principal.namespace, annotations=request.annotations)
        most = limits_of(principal, self._default_limits).domains
        new = Domain(metadata=meta, spec=spec)
        made = await self._create(principal, new, request, field="domain", most=most, taken=taken)
        return await self._with_dns_records(principal, made)

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
        return self._recorded(self._find(principal, host) or made)

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
        domain = await agreed(self._client, self._named(principal, host), match, "domain")
        stamp = self._clock().isoformat()
        requested = {"annotations": {REQUESTED_AT_ANNOTATION: stamp}}
        patch = {"metadata": {**precondition(domain, match), **requested}}
        await patch_agreed(self._client, domain, patch, match, "domain")

        def is_handled() -> bool:
            found = self._find(principal, host)
            return found is None or found.status.last_handled_request == stamp

        await self._cache.domains.until(is_handled, within=DNS_WAIT_SECONDS)
        return self._recorded(self._named(principal, host))

    def _find(self, principal: Principal, host: str) -> Domain | None:
        return find_domain(host, self._cache.domains_of(principal.namespace))

    def _records_are_known(self, principal: Principal, host: str) -> bool:
        found = self._find(principal, host)
        return found is not None and found.status.records is not None

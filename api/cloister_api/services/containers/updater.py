"""Relaunch, stop, start, delete and cancel: merge patches of a Container's spec.

Each patch has the resourceVersion that it was decided on as its precondition, and is decided again
on a conflict. The actions that a state allows are the table of spec 22.1.
"""

import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from cloister_api.auth.authenticator import Principal
from cloister_api.cache import CachedContainer, project_container
from cloister_api.errors import ApiError, bad_request, changed_since, conflict, not_found
from cloister_api.records.container import shown_state
from cloister_api.schemas.containers import RelaunchRequest
from cloister_api.services.containers.creator import HostnameClaims, hostname_taken
from cloister_api.services.containers.reader import ContainerReader
from cloister_api.services.containers.refusals import (
    facts_of_change,
    forbid,
    managed_keys,
    refuse_managed,
    require_subscription,
)
from cloister_api.services.containers.resolution import (
    ReleaseResolver,
    ResolvedRelease,
    admitted_problems,
)
from cloister_api.services.containers.specs import (
    before_update,
    cancelling,
    deployed_spec,
    deploying,
    no_longer_followed,
    spec_patch,
    written_spec,
)
from cloister_api.services.infrastructure import Infrastructure
from cloister_clients.kube import Conflict, Invalid, NotFound
from cloister_clients.kube.errors import BadRequest
from cloister_clients.kube.kinds import of
from cloister_clients.tracing.spans import traceparent
from cloister_crds.kinds import Container, Enclave
from cloister_crds.kinds.container import ContainerSpec, DesiredState
from cloister_crds.kinds.enclave import EnclavePhase
from cloister_crds.kinds.hostnameclaim import ClaimHolder
from cloister_crds.kinds.request import RequestRecord
from cloister_crds.lifecycle import kept_request
from cloister_crds.lifecycle.actions import ApiAction
from cloister_crds.lifecycle.names.hostnames import generated_hostnames
from cloister_crds.lifecycle.tracing import trace_annotation

SWITCH_WAIT = 5.0
"""Seconds that an accept waits until the update serves (spec 22.2)."""
ATTEMPTS = 8
"""How often a patch is decided again after a conflict with a concurrent write."""

Decide = Callable[[CachedContainer], Awaitable[dict[str, Any]]]
"""Returns the changed keys of spec; empty if there is nothing to change. May raise ApiError.

It is called again after a conflict, so that whatever it reads is of the container that it is given:
an update may have been promoted meanwhile."""


class ContainerUpdater:
    """Changes containers."""

    def __init__(
        self,
        base: Infrastructure,
        reader: ContainerReader,
        claims: HostnameClaims,
        resolver: ReleaseResolver,
    ) -> None:
        self._client, self._cache = base.client, base.cache
        self._reader = reader
        self._resolver = resolver
        self._claims = claims
        self._domain = base.installation.containers_domain
        self._gitops = frozenset(base.settings.gitops_managers)
        self._webhooks = base.settings.webhooks.on

    async def relaunch(
        self, principal: Principal, held: CachedContainer, body: RelaunchRequest
    ) -> CachedContainer:
        """Deploy again, with what the body changes.

        Raises
        ------
        ApiError
            409 while it is stopping or stopped; 402, 403, 400, 503 as the checks find.
        KubeError
            When the cluster refuses or does not respond.
        """
        held = await self._in_a_state_for(held, ApiAction.RELAUNCH)

        async def ended(present: Container) -> RequestRecord | None:
            # Without a tag a relaunch is of what serves, whatever an update would bring.
            return None if body.tag else await self._before_update(present)

        return await self._deploy(principal, held, body, ApiAction.RELAUNCH, ended)

    async def start(
        self, principal: Principal, held: CachedContainer, body: RelaunchRequest
    ) -> CachedContainer:
        """Deploy a stopped container as it was, or with what the body changes.

        Raises
        ------
        ApiError
            409 unless it is stopped; 402, 403, 400, 503 as the checks find.
        KubeError
            When the cluster refuses or does not respond.
        """
        held = await self._in_a_state_for(held, ApiAction.START)

        async def ended(_present: Container) -> None:
            """Return None: no update is in progress."""

        return await self._deploy(principal, held, body, ApiAction.START, ended)

    async def stop(self, held: CachedContainer) -> CachedContainer:
        """Terminate the enclaves and keep the Container; idempotent.

        An update that was not accepted ends as by `cancel`, so that a start brings back what
        served. Where a GitOps manager owns that part of spec, the operator remembers it.

        Raises
        ------
        ApiError
            409 when a GitOps manager owns the state.
        KubeError
            When the cluster refuses or does not respond.
        """

        async def decide(present: CachedContainer) -> dict[str, Any]:
            if present.container.spec.state is DesiredState.STOPPED:
                return {}
            earlier = await self._before_update(present.container)
            ends = cancelling(present.container, earlier) if earlier is not None else {}
            if managed_keys(present, ends, self._gitops):
                ends = {}
            return {**ends, "state": DesiredState.STOPPED.value}

        return await self._patch(held, decide)

    async def delete(self, principal: Principal, held: CachedContainer) -> None:
        """Delete a container; it is gone immediately, its name is free after the teardown.

        Raises
        ------
        ApiError
            409 when a GitOps manager would bring it back; 412 when it is no longer the version that
            the client named.
        KubeError
            When the cluster refuses or does not respond.
        """
        for manager in sorted(held.managers & self._gitops):
            raise conflict(
                f"{manager} manages container {held.container.display_name} and would bring it "
                "back; delete it in its repository"
            )
        meta = held.container.metadata
        # Gone already, or replaced by another one of that name: also done.
        with suppress(NotFound):
            try:
                await self._client.delete(
                    of(Container),
                    meta.name,
                    principal.namespace,
                    uid=meta.uid,
                    resource_version=meta.resource_version if held.pinned else None,
                    propagation="Background",
                )
            except Conflict as error:
                if held.pinned:
                    raise changed_since() from error
        # Creation first, where another replica created it and the cache does not show it yet.
        await self._reader.until_shown(held)
        await self._reader.until_deleted(meta.uid)

    async def accept(self, held: CachedContainer) -> CachedContainer:
        """Promote the staged update, and wait a little for the switch.

        Raises
        ------
        ApiError
            409 when no update is ready, or a GitOps manager owns the promotion.
        KubeError
            When the cluster refuses or does not respond.
        """

        async def decide(present: CachedContainer) -> dict[str, Any]:
            forbid(present, ApiAction.ACCEPT)
            update = present.container.status.update
            if update is None:
                raise conflict("the update is gone; nothing is left to accept")
            return {"promote": update.revision}

        changed = await self._patch(held, decide)
        return await self._reader.until_switched(changed, within=SWITCH_WAIT)

    async def cancel(self, held: CachedContainer) -> CachedContainer:
        """Restore the request that served before the update, which terminates the candidate.

        Raises
        ------
        ApiError
            409 when there is no update, or what served before is no longer known.
        KubeError
            When the cluster refuses or does not respond.
        """

        async def decide(present: CachedContainer) -> dict[str, Any]:
            forbid(present, ApiAction.CANCEL)
            earlier = await self._request_before(present.container)
            return cancelling(present.container, earlier)

        return await self._patch(held, decide)

    async def _request_before(self, container: Container) -> RequestRecord:
        """Return the request of what serves, else of the attempt that failed before the update.

        Raises
        ------
        ApiError
            409 when no such Enclave is left.
        """
        own = await self._enclaves_of(container)
        status = container.status
        candidate = status.update.uid if status.update is not None else ""
        for enclave in own:
            if enclave.metadata.name == status.active_enclave:
                return enclave.spec.request
        before = kept_request.release_before(status, kept_request.requested(container))
        if status.update is None and before is not None:
            return before  # The update is a start that failed.
        failed = [
            one
            for one in own
            if one.status.phase is EnclavePhase.FAILED and one.metadata.uid != candidate
        ]
        if not failed:
            raise conflict("nothing is known of a version before the update; relaunch instead")
        return max(failed, key=lambda one: str(one.metadata.creation_timestamp)).spec.request

    async def _enclaves_of(self, container: Container) -> list[Enclave]:
        page = await self._client.list(of(Enclave), container.metadata.namespace)
        enclaves = [Enclave.read(item) for item in page.items]
        return [one for one in enclaves if one.spec.container.uid == container.metadata.uid]

    async def _before_update(self, container: Container) -> RequestRecord | None:
        """Return what served before an update that was not accepted; None if there is none."""
        updating = shown_state(container).update is not None
        serves = bool(container.status.active_enclave)
        return before_update(
            container, await self._enclaves_of(container) if updating and serves else ()
        )

    async def _in_a_state_for(self, held: CachedContainer, action: ApiAction) -> CachedContainer:
        """Return a container whose state allows an action; one that seems not to is read again.

        Raises
        ------
        ApiError
            409 when it does not; 404 when it is gone.
        """
        if not held.pinned:
            with suppress(ApiError):
                forbid(held, action)
                return held
            held = await self._reread(held)
        forbid(held, action)
        return held

    async def _deploy(
        self,
        principal: Principal,
        held: CachedContainer,
        body: RelaunchRequest,
        action: ApiAction,
        ended: Callable[[Container], Awaitable[RequestRecord | None]],
    ) -> CachedContainer:
        """Check and write a relaunch or a start.

        Parameters
        ----------
        ended
            Returns what served before an update that this ends; None if the body changes what is
            requested.

        Raises
        ------
        ApiError
            402, 403, 400, 409 or 503.
        KubeError
            When the cluster refuses or does not respond.
        """
        require_subscription(principal.organization)
        container = held.container
        earlier = await ended(container)
        written = written_spec(container, body, earlier)
        refuse_managed(held, spec_patch(container.spec, written), self._gitops)
        spec = deployed_spec(container, body, earlier)
        found = await self._checked(principal, held, spec)

        async def decide(present: CachedContainer) -> dict[str, Any]:
            forbid(present, action)
            earlier = await ended(present.container)
            patch = deploying(present.container, body, earlier, found.release)
            return {**patch, "relaunch": secrets.token_hex(8)}

        changed = await self._patch(held, decide)
        return replace(changed, moved_tag=kept_request.moved_tag(found.release))

    async def _checked(
        self, principal: Principal, held: CachedContainer, spec: ContainerSpec
    ) -> ResolvedRelease:
        """Check a changed spec as a create would be checked.

        Raises
        ------
        ApiError
            402, 403, 400, 409 or 503.
        """
        container = held.container
        facts = facts_of_change(self._cache, principal, container, spec)
        kept = kept_request.is_present_release(container.status, spec.tag, spec.commit)
        found = await self._resolver.approve(facts, admitted_problems(facts), kept=kept)
        holder = ClaimHolder(namespace=principal.namespace, name=container.metadata.name)
        if spec.debug != container.spec.debug:
            await self._refuse_taken(principal, container, holder, debug=spec.debug)
        if spec.custom_domain and spec.custom_domain != container.spec.custom_domain:
            await self._claims.claim(spec.custom_domain, holder)
        return found

    async def _refuse_taken(
        self, principal: Principal, container: Container, holder: ClaimHolder, *, debug: bool
    ) -> None:
        """Refuse another value of debug with which the name or the host name is taken.

        Raises
        ------
        ApiError
            409.
        """
        for other in self._cache.containers_of(principal.namespace):
            namesake = other.container
            if namesake.metadata.uid == container.metadata.uid:
                continue
            if namesake.display_name == container.display_name and namesake.spec.debug is debug:
                raise conflict(
                    f"debug: the organization has another container named "
                    f"{container.display_name} with debug {str(debug).lower()}"
                )
        hostname = generated_hostnames(
            container, principal.organization, self._domain, debug=debug
        ).internal
        if await self._claims.holder(hostname) not in {None, holder}:
            raise hostname_taken(hostname)

    async def follow(self, held: CachedContainer, *, wanted: bool) -> CachedContainer:
        """Switch automatic updates on or off; what was followed is then the tag of spec.

        Raises
        ------
        ApiError
            409 for a container that is not connected to its repository, 400 for a debug container.
        KubeError
            When the cluster refuses or does not respond.
        """

        async def decide(present: CachedContainer) -> dict[str, Any]:
            spec = present.container.spec
            if wanted and spec.debug:
                raise bad_request(
                    "auto_update", "auto_update: only production containers follow releases"
                )
            if wanted and not spec.github_connected:
                raise conflict(
                    "auto_update needs the connection to the repository; "
                    "POST …/github-connection first"
                )
            if spec.auto_update is wanted:
                return {}
            return {"autoUpdate": True} if wanted else no_longer_followed(present.container)

        return await self._patch(held, decide)

    async def connect(self, held: CachedContainer, *, wanted: bool) -> CachedContainer:
        """Let the webhooks of the repository act on a container, or not.

        Raises
        ------
        ApiError
            409 when a container that follows releases would be disconnected, 400 when the
            installation accepts no webhooks.
        KubeError
            When the cluster refuses or does not respond.
        """

        async def decide(present: CachedContainer) -> dict[str, Any]:
            spec = present.container.spec
            if wanted and not self._webhooks:
                # The default of spec is true; the record is false all the same.
                raise bad_request(
                    "connected",
                    "the installation accepts no release webhooks, so nothing can be connected; "
                    "ask the administrator for the setting webhooks.releaseSecretFile",
                )
            if spec.github_connected is wanted:
                return {}
            if spec.auto_update:
                raise conflict("auto_update needs the connection; switch auto_update off first")
            return {"githubConnected": wanted}

        return await self._patch(held, decide)

    async def _patch(self, held: CachedContainer, decide: Decide) -> CachedContainer:
        """Write what is decided; decide again after each conflict with a concurrent write.

        Raises
        ------
        ApiError
            404 when it was deleted meanwhile, 409 when others keep writing or a GitOps manager owns
            a changed key, 400 when the server refuses the result.
        """
        meta = held.container.metadata
        assert meta.namespace is not None
        for attempt in range(ATTEMPTS):
            if attempt:
                held = await self._reread(held)
            held, patch = await self._decided(held, decide)
            if not patch:
                return held
            now = held.container.metadata
            traced = trace_annotation(traceparent(), now.generation + 1)
            metadata = {"resourceVersion": now.resource_version, "uid": meta.uid}
            shown = {"annotations": traced} if traced else {}
            body = {"metadata": {**metadata, **shown}, "spec": patch}
            try:
                item = await self._client.merge_patch(
                    of(Container), meta.name, body, meta.namespace
                )
            except Conflict as error:
                if held.pinned:
                    raise changed_since() from error
                continue
            except NotFound as error:
                raise not_found("container") from error
            except (Invalid, BadRequest) as error:
                raise ApiError(400, "BAD_REQUEST", error.message) from error
            changed = project_container(item)
            await self._reader.until_shown(changed)
            return changed
        raise conflict("the container is being changed by others; try again")

    async def _decided(
        self, held: CachedContainer, decide: Decide
    ) -> tuple[CachedContainer, dict[str, Any]]:
        """Return the container that was decided on, and what was.

        The cache may lag behind another replica's write. Nothing is refused or left undone because
        of that: both are decided again on what the cluster has.
        """
        if not held.pinned:
            with suppress(ApiError):
                patch = await decide(held)
                refuse_managed(held, patch, self._gitops)
                if patch:
                    return held, patch
            held = await self._reread(held)
        patch = await decide(held)
        refuse_managed(held, patch, self._gitops)
        return held, patch

    async def _reread(self, held: CachedContainer) -> CachedContainer:
        """Return a container as the cluster has it.

        Raises
        ------
        ApiError
            404 when it is gone.
        """
        meta = held.container.metadata
        try:
            found = await self._reader.now(meta.namespace or "", meta.name)
        except NotFound as error:
            raise not_found("container") from error
        if found.container.metadata.uid != meta.uid:
            raise not_found("container")
        return found

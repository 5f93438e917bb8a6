"""Lookups at the source provider, registries and name servers."""

import asyncio
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Protocol

from cachetools import LRUCache

from cloister_clients.clock import Clock, utc_now
from cloister_clients.dns import DnsError
from cloister_clients.kube import KubeClient, KubeError, NotFound
from cloister_clients.kube.kinds import SECRET
from cloister_clients.registry import (
    Credentials,
    Platform,
    PrivateRegistry,
    RegistryError,
    RegistryUnauthorized,
    ResolvedImage,
)
from cloister_clients.registry.client import (
    StoredCredentials,
    fitting_credentials,
    stored_credentials,
)
from cloister_clients.sources import SourceError, SourceProvider
from cloister_crds.config import Rules, parse
from cloister_crds.kinds.container import LatestRelease
from cloister_crds.lifecycle.admission.secrets import value_error
from cloister_crds.lifecycle.state.observed import (
    DnsFacts,
    Failed,
    Known,
    LookupResult,
    Need,
    NeedDns,
    NeedImage,
    NeedLatest,
    NeedRelease,
    NeedSecretValues,
    NewestRelease,
    RegistryImage,
    ReleaseFacts,
    SecretValues,
)
from cloister_operator.enclave.pod.pod import unenforced
from cloister_operator.workqueue.triggers import Key

_REMEMBERED = 4096
"""Core Secrets of which it is remembered whether a registry refused them; status has it too."""


class ImageRegistry(Protocol):
    """The registries; `RegistryClient` is the real one."""

    async def resolve(
        self, reference: str, *, platform: Platform, credentials: Credentials | None
    ) -> ResolvedImage:
        """Find an image, as `RegistryClient.resolve` does."""
        ...

    async def aclose(self) -> None:
        """Close connections."""


class NameServers(Protocol):
    """The authoritative name servers; `AuthoritativeDns` is the real one."""

    async def texts(self, name: str) -> tuple[str, ...]:
        """Return the TXT records of a name."""
        ...

    async def alias(self, name: str) -> tuple[str, ...]:
        """Return the chain of aliases of a name."""
        ...


class ImageLookup:
    """Looks images up, with an organization's credentials where they fit."""

    def __init__(
        self,
        client: KubeClient,
        registry: ImageRegistry,
        *,
        further: Mapping[PrivateRegistry, tuple[str, ...]],
        enqueue: Callable[[Key], None],
    ) -> None:
        self._client = client
        self._registry = registry
        self._further = further
        self._enqueue = enqueue
        self._refused: LRUCache[tuple[str, str], tuple[str, bool]] = LRUCache(_REMEMBERED)

    async def resolve(self, need: NeedImage, platform: Platform) -> ResolvedImage:
        """Resolve an image.

        Raises
        ------
        RegistryError
            When the registry does not have it, refuses, or cannot be reached.
        KubeError
            When the credentials cannot be read.
        """
        stored = await stored_credentials(
            self._client, need.namespace, need.credentials, self._further
        )
        chosen = fitting_credentials(need.image, stored)
        credentials = chosen.credentials if chosen is not None else None
        try:
            found = await self._registry.resolve(
                need.image, platform=platform, credentials=credentials
            )
        except RegistryUnauthorized:
            self._remember(need.namespace, chosen, refused=True)
            raise
        self._remember(need.namespace, chosen, refused=False)
        return found

    def refused(self, namespace: str, secret: str, version: str) -> bool | None:
        """Return whether a registry refused the credentials in a version of a core Secret.

        None if this process has not used that version yet.
        """
        known = self._refused.get((namespace, secret))
        return known[1] if known is not None and known[0] == version else None

    def _remember(self, namespace: str, chosen: StoredCredentials | None, *, refused: bool) -> None:
        """Remember whether a registry refused, and have the status written when that changed."""
        if chosen is None:
            return
        place, outcome = (namespace, chosen.place.secret), (chosen.version, refused)
        if self._refused.get(place) != outcome:
            self._refused[place] = outcome
            self._enqueue(Key("RegistryCredential", namespace, chosen.place.name))


@dataclass(frozen=True, slots=True)
class TimedOut(Failed):
    """A lookup whose remote host did not respond in time."""


class Lookup(Protocol):
    """Performs one lookup; never raises for what a user or a server did wrong."""

    async def __call__(self, need: Need) -> LookupResult:
        """Return the result."""


class ExternalLookup:
    """The real `Lookup`: source provider, registries, DNS, core Secrets."""

    def __init__(
        self,
        *,
        source: SourceProvider,
        images: ImageLookup,
        client: KubeClient,
        dns: NameServers,
        rules: Rules,
        clock: Clock = utc_now,
    ) -> None:
        self._source = source
        self._dns = dns
        self._images = images
        self._client = client
        self._rules = rules
        self._clock = clock

    async def __call__(self, need: Need) -> LookupResult:
        """Return the result, or why there is none."""
        result: LookupResult
        try:
            match need:
                case NeedRelease():
                    result = Known(await self._release(need), self._clock())
                case NeedImage():
                    result = Known(await self._image(need), self._clock())
                case NeedSecretValues():
                    result = Known(await self._secrets(need), self._clock())
                case NeedDns():
                    result = Known(await self._records(need), self._clock())
                case NeedLatest():
                    result = Known(await self._newest(need), self._clock())
        except (SourceError, RegistryError, DnsError) as error:
            return self._failed(error.reason, error.message, error, transient=error.transient)
        except KubeError as error:
            message = (
                f"the API server did not report whether the secrets are there: {error.message}"
            )
            return self._failed("ClusterUnavailable", message, error, transient=True)
        else:
            return result

    async def _release(self, need: NeedRelease) -> ReleaseFacts:
        """Read a release and validate its file."""
        release = await self._source.resolve(
            need.repo, need.tag, commit=need.commit, kept=need.kept
        )
        # Validation of a large file takes milliseconds that other reconciles need not wait for.
        rules = replace(
            self._rules,
            cpu_tiers=need.tiers.cpus,
            memory_tiers=need.tiers.memory,
            gpu_counts=need.tiers.gpus,
        )
        parsed = await asyncio.to_thread(parse, release.file, rules=rules)
        return ReleaseFacts(
            repo=release.repo,
            tag=release.tag,
            commit=release.commit,
            published=release.published,
            file_name=release.file_name,
            raw=release.file,
            digest=parsed.digest,
            config=parsed.config,
            problems=parsed.problems,
            unenforced=unenforced(parsed.config) if parsed.config else (),
            tag_commit=release.tag_commit,
        )

    async def _image(self, need: NeedImage) -> RegistryImage:
        """Read an image's description."""
        found = await self._images.resolve(need, Platform.parse(need.platform))
        return RegistryImage(
            image=need.image,
            entrypoint=found.entrypoint,
            cmd=found.cmd,
            env=found.env,
            user=found.user,
            working_dir=found.working_dir,
            stop_signal=found.stop_signal,
            size=found.runtime_size,
            pulled=found.size,
        )

    async def _newest(self, need: NeedLatest) -> NewestRelease:
        """Find the newest release, and when it differs, the publication time of the present one."""
        newest = await self._source.latest(need.repo)
        if newest is None:
            return NewestRelease(newest=None)
        found = LatestRelease(tag=newest.tag, commit=newest.commit, published_at=newest.published)
        if need.than is None or need.than == newest.tag:
            return NewestRelease(newest=found)
        present = await self._source.resolve(need.repo, need.than)
        return NewestRelease(
            newest=found, than_published=present.published, than_commit=present.commit
        )

    async def _secrets(self, need: NeedSecretValues) -> SecretValues:
        """Read which values exist and can be used; the values are dropped immediately."""
        missing, unusable = [], []
        for name in sorted({ref.secret for ref in need.refs}):
            try:
                data = (await self._client.get(SECRET, name, need.namespace)).get("data") or {}
            except NotFound:
                data = {}
            for ref in (each for each in need.refs if each.secret == name):
                if ref.key not in data:
                    missing.append(ref)
                elif (error := value_error(ref.name, b64decode(data[ref.key]))) is not None:
                    unusable.append((ref, error))
        return SecretValues(missing=tuple(missing), unusable=tuple(unusable))

    async def _records(self, need: NeedDns) -> DnsFacts:
        """Look up both records of a custom domain."""
        texts, aliases = await asyncio.gather(
            self._dns.texts(need.txt_name), self._dns.alias(need.domain)
        )
        return DnsFacts(texts, aliases, need.request)

    def _failed(self, reason: str, message: str, error: Exception, *, transient: bool) -> Failed:
        """Return why a lookup failed, and when the other side wants to be queried again."""
        now = self._clock()
        wait = getattr(error, "retry_after", None)
        retry_at = now + timedelta(seconds=wait) if transient and wait else None
        late = getattr(error, "timed_out", False)
        return (TimedOut if late else Failed)(reason, message, transient, now, retry_at)

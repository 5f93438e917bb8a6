"""Resolves images: digest, platform, start command, with an organization's credentials."""

import asyncio
import logging
from base64 import b64decode
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial

import httpx

from cloister_clients.address_guard import AddressRefused, Guard, named
from cloister_clients.clock import Clock, utc_now
from cloister_clients.foreign_json import parse_apart
from cloister_clients.kube import KubeClient, NotFound
from cloister_clients.kube.kinds import SECRET
from cloister_clients.outbound import (
    HttpResponse,
    ResponseTooLarge,
    fetch,
    guarded_client,
    is_timeout,
    retry_after,
    trust,
)
from cloister_clients.registry.auth import Audience, RegistryAuthenticator, parse_challenges
from cloister_clients.registry.credentials import Credentials, PrivateRegistry, credentials_in
from cloister_clients.registry.errors import (
    CredentialsInvalid,
    ImageNotFound,
    ManifestInvalid,
    RegistryError,
    RegistryRateLimited,
    RegistryRefused,
    RegistryUnauthorized,
    RegistryUnavailable,
)
from cloister_clients.registry.manifest import (
    MANIFEST_TYPES,
    ManifestDocument,
    Platform,
    RuntimeConfig,
    check_platform,
    choose,
    digest_of,
    parse_config,
    parse_document,
)
from cloister_clients.registry.reference import DOCKER_HUB, ImageReference, parse_reference
from cloister_clients.registry.settings import RegistrySettings
from cloister_crds.lifecycle.state.observed import SecretRefKey

__all__ = [
    "LINUX_AMD64",
    "RegistryClient",
    "ResolvedImage",
    "StoredCredentials",
    "fitting_credentials",
    "stored_credentials",
]


@dataclass(frozen=True, slots=True)
class StoredCredentials:
    """Credentials and where they were read."""

    place: SecretRefKey
    """The core Secret; its `name` is the registry."""
    version: str
    """resourceVersion of the core Secret."""
    credentials: Credentials
    """The credentials."""


async def stored_credentials(
    client: KubeClient,
    namespace: str,
    places: Iterable[SecretRefKey],
    further: Mapping[PrivateRegistry, tuple[str, ...]],
) -> tuple[StoredCredentials, ...]:
    """Read an organization's credentials.

    Parameters
    ----------
    further
        Hosts, other than the registries' own, that they may be for.

    Returns
    -------
    tuple[StoredCredentials, ...]
        Those that can be used; what is wrong with the others is in the conditions of their
        RegistryCredential.

    Raises
    ------
    KubeError
        When the cluster does not respond.
    """
    found: list[StoredCredentials] = []
    for place in places:
        registry = PrivateRegistry(place.name)
        try:
            body = await client.get(SECRET, place.secret, namespace)
            document = b64decode((body.get("data") or {}).get(place.key) or "")
            usable = credentials_in(registry, document, further.get(registry, ()))
        except (NotFound, CredentialsInvalid):
            continue
        version = str(body["metadata"]["resourceVersion"])
        found += [StoredCredentials(place, version, each) for each in usable]
    return tuple(found)


def fitting_credentials(
    image: str, stored: Iterable[StoredCredentials]
) -> StoredCredentials | None:
    """Choose the credentials that may be sent for an image; None when none may.

    Raises
    ------
    ReferenceInvalid
        When the text is not a reference.
    """
    registry = parse_reference(image).registry
    return next((each for each in stored if each.credentials.fit(registry)), None)


LINUX_AMD64 = Platform("linux", "amd64")
"""The platform of confidential hosts."""

DOCKER_HUB_SERVER = "registry-1.docker.io"
"""Host that serves the registry docker.io."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ResolvedImage:
    """An image as far as it must be known to start it."""

    reference: str
    """``registry/repository@digest``, with the digest as it was given."""
    manifest_digest: str
    """Digest of the platform's manifest; the given one where the image has no index."""
    entrypoint: tuple[str, ...] | None
    """Program and first arguments of the image; None: none."""
    cmd: tuple[str, ...] | None
    """Further arguments of the image, or its program; None: none."""
    env: tuple[str, ...]
    """Environment of the image, each ``NAME=value``."""
    user: str
    """User and group of the image; empty: root."""
    working_dir: str
    """Working directory of the image; empty: the root directory."""
    stop_signal: str
    """Signal that ends the image's process; empty: SIGTERM."""
    size: int
    """Size of configuration and layers as they are pulled, in bytes."""
    runtime_size: int
    """Size of what the image says about its process, in bytes of JSON."""


@dataclass(frozen=True, slots=True)
class _RegistryServer:
    """A server that can have an image."""

    address: str
    """Address before ``/v2/``."""
    query: str
    """Query of each request, with its question mark; empty: none."""
    credentials: Credentials | None
    """What may be sent to it."""


class RegistryClient:
    """Queries registries for images."""

    def __init__(
        self, settings: RegistrySettings, *, guard: Guard | None = None, clock: Clock = utc_now
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._client = guarded_client(
            guard or settings.guard(),
            context=trust(settings.ca_file),
            timeout_seconds=settings.timeout_seconds,
            user_agent="cloister",
        )
        self._authenticator = RegistryAuthenticator(
            self._client, token_hosts=settings.token_hosts, clock=clock
        )

    async def aclose(self) -> None:
        """Close connections; the client is not used afterwards."""
        await self._client.aclose()

    async def resolve(
        self,
        reference: str,
        *,
        platform: Platform = LINUX_AMD64,
        credentials: Credentials | None = None,
    ) -> ResolvedImage:
        """Find an image and read its configuration.

        Parameters
        ----------
        reference
            Reference of the image; without a digest its tag is looked up.
        credentials
            Credentials of the organization; sent only to registries that they fit. None: none.

        Raises
        ------
        RegistryError
            Of the class that says why, see `cloister_clients.registry.errors`.
        """
        image = parse_reference(reference)
        async with self._bounded(image):
            if image.digest is None:
                image = await self._look_up(image, credentials)
            assert image.digest is not None
            digest = image.digest
            document = await self._document(image, digest, credentials)
            if document.manifests is not None:
                digest = choose(document, platform, str(image)).digest
                document = await self._document(image, digest, credentials)
            if document.config is None:
                raise ManifestInvalid(f"{image} is an index of indexes; push an index of images")
            if document.config.size > self._settings.max_config_bytes:
                raise ManifestInvalid(
                    f"the configuration of {image} has {document.config.size} bytes, and at most "
                    f"{self._settings.max_config_bytes} are read (registry.maxConfigBytes); "
                    "build it with less"
                )
            content = await self._content(
                image, "blobs", document.config.digest, credentials,
                limit=self._settings.max_config_bytes,
            )  # fmt: skip
        config = await parse_apart(partial(parse_config, name=str(image)), content)
        check_platform(config, platform, str(image))
        return _resolved(image, digest, document, config.config or RuntimeConfig())

    async def exists(self, reference: str, *, credentials: Credentials | None = None) -> bool:
        """Return whether a registry, or for a digest one of its mirrors, has an image.

        Parameters
        ----------
        reference
            Reference of the image, with a tag or a digest.
        credentials
            Credentials of the organization; None: none.

        Raises
        ------
        RegistryError
            When that cannot be determined.
        """
        image = parse_reference(reference)
        async with self._bounded(image):
            try:
                if image.digest:
                    limit = self._settings.max_manifest_bytes
                    await self._content(image, "manifests", image.digest, credentials, limit=limit)
                else:
                    server, tag = self._origin(image, credentials), image.tag or "latest"
                    await self._request(server, image, "HEAD", "manifests", tag, limit=0)
            except ImageNotFound:
                return False
            return True

    @asynccontextmanager
    async def _bounded(self, image: ImageReference) -> AsyncIterator[None]:
        """Bound the time of one lookup."""
        try:
            async with asyncio.timeout(self._settings.total_seconds):
                yield
        except TimeoutError as error:
            raise RegistryUnavailable(
                f"{image.registry} took longer than {self._settings.total_seconds:g} seconds "
                f"for {image}",
                timed_out=True,
            ) from error

    async def _look_up(
        self, image: ImageReference, credentials: Credentials | None
    ) -> ImageReference:
        """Find the digest of a tag; mirrors are not queried, they may be behind."""
        tag = image.tag or "latest"
        response = await self._request(
            self._origin(image, credentials), image, "GET", "manifests", tag,
            limit=self._settings.max_manifest_bytes,
        )  # fmt: skip
        digest = digest_of(response.body, "sha256:")
        return ImageReference(image.registry, image.repository, image.tag, digest)

    async def _document(
        self, image: ImageReference, digest: str, credentials: Credentials | None
    ) -> ManifestDocument:
        """Read a manifest or an index."""
        limit = self._settings.max_manifest_bytes
        content = await self._content(image, "manifests", digest, credentials, limit=limit)
        return await parse_apart(partial(parse_document, name=str(image)), content)

    async def _content(
        self,
        image: ImageReference,
        kind: str,
        digest: str,
        credentials: Credentials | None,
        *,
        limit: int,
    ) -> bytes:
        """Read content by its digest from the first server that has it, and check it."""
        for address in self._settings.mirrors.get(image.registry, ()):
            mirror = _RegistryServer(address.rstrip("/"), f"?ns={image.registry}", None)
            try:
                return await self._checked(mirror, image, kind, digest, limit=limit)
            except RegistryError as error:
                _log.info("mirror %s has no %s of %s: %s", address, kind, image, error)
        origin = self._origin(image, credentials)
        return await self._checked(origin, image, kind, digest, limit=limit)

    async def _checked(
        self, server: _RegistryServer, image: ImageReference, kind: str, digest: str, *, limit: int
    ) -> bytes:
        """Read content from a server and compare it with its digest."""
        response = await self._request(server, image, "GET", kind, digest, limit=limit)
        if digest_of(response.body, digest) != digest:
            # The fault is not in the image but in between: a proxy's page, a broken mirror.
            raise RegistryUnavailable(
                f"{image.registry} sent content for {image} whose digest is not {digest}; it is "
                "retried later; if this persists, notify the operator of the registry"
            )
        return response.body

    def _origin(self, image: ImageReference, credentials: Credentials | None) -> _RegistryServer:
        """Return the registry itself."""
        host = DOCKER_HUB_SERVER if image.registry == DOCKER_HUB else image.registry
        bare = httpx.URL(f"https://{host}")
        plain = named(bare.host, bare.port or 80, self._settings.plain_http)
        fitting = credentials if credentials and credentials.fit(image.registry) else None
        return _RegistryServer(f"{'http' if plain else 'https'}://{host}", "", fitting)

    async def _request(
        self, server: _RegistryServer, image: ImageReference, method: str, kind: str, target: str,
        *, limit: int,
    ) -> HttpResponse:  # fmt: skip
        """Query a server, again with credentials after a challenge."""
        audience = Audience(server.address, image.repository, server.credentials)
        url = f"{server.address}/v2/{image.repository}/{kind}/{target}{server.query}"
        headers = {"Accept": ", ".join(MANIFEST_TYPES) if kind == "manifests" else "*/*"}
        with _translated(image):
            authorization = self._authenticator.authorization(audience)
            if authorization is not None:
                headers["Authorization"] = authorization
            response = await fetch(self._client, method, url, headers=headers, limit=limit)
            if response.status == 401:  # noqa: PLR2004 - the status Unauthorized
                challenges = parse_challenges(response.headers.get_list("www-authenticate"))
                headers["Authorization"] = await self._authenticator.authorize(audience, challenges)
                response = await fetch(self._client, method, url, headers=headers, limit=limit)
        if response.status != 200:  # noqa: PLR2004 - the status OK
            raise self._failure(image, response)
        return response

    def _failure(self, image: ImageReference, response: HttpResponse) -> RegistryError:
        """Build the error for a response other than 200."""
        wait = retry_after(response.headers, self._clock())
        match response.status:
            case 404:
                return ImageNotFound(
                    f"{image.registry} has no image {image}; check repository and digest, and that "
                    "it was pushed"
                )
            case 401 | 403:
                return RegistryUnauthorized(
                    f"{image.registry} does not let {image} be read; make the image public or "
                    "enter credentials for the registry that may read it"
                )
            case 429:
                return RegistryRateLimited(
                    f"{image.registry} wants fewer requests; it is retried later",
                    retry_after=wait,
                )
            case status:
                return RegistryUnavailable(
                    f"{image.registry} responded with status {status} for {image}", retry_after=wait
                )


@contextmanager
def _translated(image: ImageReference) -> Iterator[None]:
    """Turn the errors of connections into those of registries."""
    try:
        yield
    except AddressRefused as error:
        raise RegistryRefused(f"the registry of {image} is not called: {error}") from error
    except ResponseTooLarge as error:
        raise ManifestInvalid(f"{image} is not read: {error}") from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise RegistryUnavailable(
            f"{image.registry} did not respond for {image}: {str(error) or type(error).__name__}",
            timed_out=is_timeout(error),
        ) from error


def _resolved(
    image: ImageReference, digest: str, document: ManifestDocument, config: RuntimeConfig
) -> ResolvedImage:
    """Put together what was found; an empty list means the same as none."""
    return ResolvedImage(
        reference=image.pinned,
        manifest_digest=digest,
        entrypoint=config.entrypoint or None,
        cmd=config.cmd or None,
        env=config.env or (),
        user=config.user or "",
        working_dir=config.working_dir or "",
        stop_signal=config.stop_signal or "",
        size=document.size,
        runtime_size=config.size,
    )

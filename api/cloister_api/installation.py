"""What the operator has published of its settings, and the wait for it.

The facade has no such settings of its own: without the operator's it serves nothing but its health.
"""

from collections.abc import Callable

from cloister_clients.kube import KubeClient, Reflector
from cloister_clients.kube.kinds import CONFIG_MAP
from cloister_crds.installation import CONFIG_MAP_NAME, InstallationSettings


class PublishedInstallation:
    """The ConfigMap of the operator, followed by a watch; `run` it as a task."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self._namespace = namespace
        self._reflector = Reflector(
            client,
            CONFIG_MAP,
            InstallationSettings.read,
            namespace=namespace,
            field_selector=f"metadata.name={CONFIG_MAP_NAME}",
        )

    async def run(self) -> None:
        """Follow the ConfigMap until cancelled."""
        await self._reflector.run()

    @property
    def present(self) -> InstallationSettings | None:
        """The settings; None if they are not known yet, or were deleted."""
        entry = self._reflector.get(CONFIG_MAP_NAME, self._namespace)
        return entry.value if entry is not None else None

    @property
    def missing(self) -> str:
        """Why there are none, as a sentence."""
        if not self._reflector.ready:
            return f"the cluster was not read yet: {self._reflector.failure or 'listing'}"
        return (
            "the operator has not yet published the installation's settings in the ConfigMap "
            f"{self._namespace}/{CONFIG_MAP_NAME}"
        )

    async def published(self) -> InstallationSettings:
        """Wait for the settings, and return them."""
        while (found := self.present) is None:
            await self._next(lambda: self.present is not None)
        return found

    async def changed(self, known: InstallationSettings) -> None:
        """Wait until other settings are published; a deletion changes nothing."""
        while self.present in {None, known}:
            await self._next(lambda: self.present not in {None, known})

    async def _next(self, predicate: Callable[[], bool]) -> None:
        await self._reflector.until(predicate, within=None)

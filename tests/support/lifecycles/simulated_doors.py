"""Both doors to a simulated operator: changes of the manifest, and the facade's own patches."""

from dataclasses import replace
from typing import Any

from typing_extensions import override

from cloister_api.schemas.containers import RelaunchRequest
from cloister_api.services.containers.specs import (
    before_update,
    cancelling,
    deployed_spec,
    deploying,
    no_longer_followed,
)
from cloister_api.services.resources.deployments import InstanceUpdate
from cloister_crds.kinds import Container
from cloister_crds.kinds.container import DesiredState
from cloister_crds.kinds.request import RequestRecord
from cloister_crds.lifecycle.kept_request import is_present_release, moved_tag
from cloister_crds.lifecycle.state.observed import Known, NeedRelease, ReleaseFacts
from tests.support.builders.world import SimulatedCluster

__all__ = ["Manifest", "Rest"]


class Manifest:
    """Changes of the manifest."""

    def __init__(self, world: SimulatedCluster) -> None:
        self.world = world
        status = world.container.status
        active = world.enclaves.get(status.active_enclave)
        self.served: RequestRecord | None = active.spec.request if active is not None else None
        self.warning: str | None = None
        self.staging: bool | None = world.container.spec.staging

    def relaunch(self, tag: str | None = None, *, staging: bool | None = None) -> None:
        """Set relaunch, and put the rest back unless a tag is named."""
        more = {} if staging is None else {"staging": staging}
        self.world.change_spec(relaunch=f"again {tag}", relaunch_staging=None, **more)
        if tag is not None:
            self.world.change_spec(tag=tag)
        elif self.served is not None and not self.world.container.spec.auto_update:
            self.world.change_spec(tag=self.served.tag)

    def stop(self) -> None:
        """Set state, and nothing else."""
        self.world.change_spec(state=DesiredState.STOPPED)

    def start(self, tag: str | None = None) -> None:
        """Set state and relaunch, and a tag if one is named."""
        more = {"tag": tag} if tag is not None else {}
        self.world.change_spec(state=DesiredState.RUNNING, relaunch="again", **more)

    def follow(self, *, wanted: bool) -> None:
        """Set autoUpdate."""
        self.world.change_spec(auto_update=wanted)

    def update_of_all(self, tag: str, *, staging: bool) -> None:
        """Set tag and relaunchStaging, as one commit for all Containers does."""
        self.world.change_spec(tag=tag, relaunch=f"all {tag}", relaunch_staging=staging)

    def cancel(self) -> None:
        """Put spec back."""
        assert self.served is not None
        self.world.change_spec(
            tag=self.served.tag,
            relaunch=self.served.relaunch,
            staging=self.staging,
            relaunch_staging=None,
        )

    def accept(self) -> None:
        """Set promote."""
        self.world.promote()


class Rest(Manifest):
    """What the facade writes."""

    def _write(self, patch: dict[str, Any]) -> None:
        spec = {**self.world.container.spec.wire(), **patch}
        given = {key: value for key, value in spec.items() if value is not None}
        read = Container.model_validate({**self.world.container.wire(), "spec": given}).spec
        self.world.change_spec(**{name: getattr(read, name) for name in type(read).model_fields})

    def _deploy(self, body: RelaunchRequest, earlier: RequestRecord | None) -> None:
        container = self.world.container
        wanted = deployed_spec(container, body, earlier)
        kept = is_present_release(container.status, wanted.tag, wanted.commit)
        need = NeedRelease(wanted.repo, wanted.tag, wanted.commit, request="", kept=kept)
        result = self.world.release(need)
        assert isinstance(result, Known), result
        assert isinstance(result.value, ReleaseFacts)
        published = self.world.published.get(wanted.tag, self.world.now)
        found = replace(result.value, published=published)
        self.warning = moved_tag(found)
        self._write({**deploying(container, body, earlier, found), "relaunch": f"again {body.tag}"})

    def _before_update(self) -> RequestRecord | None:
        return before_update(self.world.container, self.world.enclaves.values())

    @override
    def relaunch(self, tag: str | None = None, *, staging: bool | None = None) -> None:
        """POST …/relaunch."""
        body = RelaunchRequest(tag=tag, staging=staging)
        self._deploy(body, None if tag else self._before_update())

    @override
    def update_of_all(self, tag: str, *, staging: bool) -> None:
        """POST /api/deployments/:id/update."""
        self._deploy(InstanceUpdate(tag=tag, relaunch_staging=staging), None)

    @override
    def start(self, tag: str | None = None) -> None:
        """POST …/start."""
        self._deploy(RelaunchRequest(tag=tag), None)

    @override
    def stop(self) -> None:
        """POST …/stop."""
        earlier, container = self._before_update(), self.world.container
        ends = cancelling(container, earlier) if earlier is not None else {}
        self._write({**ends, "state": "Stopped"})

    @override
    def follow(self, *, wanted: bool) -> None:
        """POST …/auto-update."""
        self._write({"autoUpdate": True} if wanted else no_longer_followed(self.world.container))

    @override
    def cancel(self) -> None:
        """POST …/update/cancel."""
        earlier = self._before_update()
        assert earlier is not None
        self._write(cancelling(self.world.container, earlier))

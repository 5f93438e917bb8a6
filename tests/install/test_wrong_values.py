"""Upgrades with wrong values: refused with the reason before anything changes.

Where the check before an upgrade is switched off, what served before still serves, with and without
a rollback, also after the processes of every Pod were killed.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from dev.chart.helm import NAMESPACE as SYSTEM
from dev.chart.local import PATIENCE
from dev.demo import manifests
from tests.support.installed.chart import Chart, this_chart
from tests.support.installed.life import Tenant
from tests.support.installed.place import Place, place_to_install
from tests.support.programs.enclave_inspector import kill
from tests.support.waiting import until_sync

pytestmark = [
    pytest.mark.node,
    pytest.mark.images,
    pytest.mark.programs("helm"),
    pytest.mark.timeout(1800),
]

UNCHECKED = {"checks": {"upgrade": False}}


@dataclass(frozen=True, slots=True)
class Wrong:
    """Values that cannot work."""

    told: str
    """What the check before an upgrade says of them."""
    values: dict[str, Any] = field(default_factory=dict)
    operator: dict[str, Any] = field(default_factory=dict)
    """Settings of the operator in the place of the right ones."""
    ends_api: bool = False
    """Whether the API is away until the values are right: one Pod at a time has SQLite's volume."""


WRONG = {
    "a database without its Secret": Wrong(
        "the Secret nosuch does not exist", {"ledger": {"postgresql": {"existingSecret": "nosuch"}}}
    ),
    "a token without its Secret": Wrong(
        "the Secret nosuch does not exist",
        {"sources": {"kind": "github", "tokenFile": {"secret": "nosuch", "key": "token"}}},
        ends_api=True,
    ),
    "a PriorityClass that does not exist": Wrong(
        "the PriorityClass nosuch does not exist", {"operator": {"priorityClassName": "nosuch"}}
    ),
    "a gateway without its kinds": Wrong(
        "the cluster has no kind tlsroutes.gateway.networking.k8s.io",
        operator={"gateway": {"name": "missing"}},
    ),
}
"""Values that only the cluster can judge; tests/chart has those that the schema refuses."""


@dataclass(frozen=True, slots=True)
class Serving:
    """An installation whose Container serves."""

    place: Place
    chart: Chart
    tenant: Tenant
    pods: list[tuple[str, str]]
    """Pods of the Container at the beginning."""

    def values(self, wrong: Wrong, **more: Any) -> dict[str, Any]:
        """Return the values with the wrong ones among them."""
        usual = self.place.values(self.chart)
        merged = {
            **{
                name: {**usual.get(name, {}), **value} if isinstance(value, dict) else value
                for name, value in wrong.values.items()
            },
            **more,
        }
        if wrong.operator:
            settings = {**usual["operator"]["settings"], **wrong.operator}
            merged["operator"] = {**usual["operator"], "settings": settings}
        return merged

    def kill_everything(self) -> None:
        """Kill the first process of every container of both programs that runs (SIGKILL)."""
        for pod in self._pods():
            for status in pod["status"].get("containerStatuses", ()):
                if "running" in status["state"]:
                    kill(status["containerID"].partition("://")[2])

    def expect_everything(self, *, api: bool = True) -> None:
        """Assert that requests are served as before, and that both programs do their work."""
        assert self.tenant.pods() == self.pods
        assert self.tenant.page().status == 200
        if api:
            self.tenant.call("GET", "/api/containers")
        # The operator observes a change.
        kubectl = self.place.cluster.kubectl
        organization = ("organization", manifests.ORGANIZATION)
        known = json.loads(kubectl("get", *organization, "-ojson"))
        limit = known["spec"].get("limits", {}).get("containers", 10) + 1
        patch = json.dumps({"spec": {"limits": {"containers": limit}}})
        changed = json.loads(kubectl("patch", *organization, "--type=merge", "-p", patch, "-ojson"))
        generation = changed["metadata"]["generation"]
        assert generation > known["metadata"]["generation"]
        observed = ("get", *organization, "-ojsonpath={.status.observedGeneration}")
        until_sync(
            lambda: kubectl(*observed) == str(generation), within=PATIENCE, what="the operator"
        )

    def revision(self, program: str) -> str:
        """Return the generation of a Deployment, which each change of it raises."""
        return self.place.cluster.kubectl(
            *("get", "deploy", f"cloister-{program}", "-n", SYSTEM),
            "-ojsonpath={.metadata.generation}",
        )

    def _pods(self) -> list[dict[str, Any]]:
        shown = self.place.cluster.kubectl(
            *("get", "pods", "-n", SYSTEM, "-ojson", "-l", "app.kubernetes.io/part-of=cloister")
        )
        found: list[dict[str, Any]] = json.loads(shown)["items"]
        return found


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("wrong")
    chart = this_chart(folder)
    with place_to_install("wrong", folder, chart) as place:
        place.prepare(chart)
        place.install("install", chart)
        tenant = Tenant.create(place.with_chart(chart))
        tenant.create_container()
        tenant.wait_until_ready()
        yield Serving(place, chart, tenant, tenant.pods())


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_refused_before_anything_changes(serving: Serving, name: str) -> None:
    wrong = WRONG[name]
    before = (serving.revision("operator"), serving.revision("api"))
    told = serving.place.refused("upgrade", serving.chart, **serving.values(wrong))
    assert wrong.told in told
    assert (serving.revision("operator"), serving.revision("api")) == before
    assert serving.tenant.pods() == serving.pods


@pytest.mark.parametrize("rollback", [True, False])
@pytest.mark.parametrize("name", WRONG)
def test_what_served_before_serves_after_an_upgrade_without_the_check(
    serving: Serving, name: str, *, rollback: bool
) -> None:
    flags = ("--rollback-on-failure",) if rollback else ("--wait",)
    wrong = WRONG[name]
    values = serving.values(wrong, **UNCHECKED)
    serving.place.refused("upgrade", serving.chart, *flags, "--timeout=20s", **values)
    serving.kill_everything()
    serving.expect_everything(api=rollback or not wrong.ends_api)
    # Right values end it.
    serving.place.install("upgrade", serving.chart)
    serving.expect_everything()


def test_an_image_that_cannot_be_fetched_stops_the_upgrade(serving: Serving) -> None:
    """The check itself has that image; what it waits for is in its Pod."""
    nowhere = {"imageRegistry": f"{serving.place.cluster.registry}/nowhere"}
    before = (serving.revision("operator"), serving.revision("api"))
    told = serving.place.refused("upgrade", serving.chart, "--timeout=20s", **{"global": nowhere})
    assert "pre-upgrade hooks failed" in told
    assert (serving.revision("operator"), serving.revision("api")) == before
    serving.kill_everything()
    serving.expect_everything()
    serving.place.install("upgrade", serving.chart)


def test_a_monitor_without_its_kind_is_refused(serving: Serving) -> None:
    monitored = serving.values(Wrong("", {"monitoring": {"serviceMonitor": {"enabled": True}}}))
    told = serving.place.refused("upgrade", serving.chart, **monitored)
    assert 'no matches for kind "ServiceMonitor"' in told
    serving.expect_everything()

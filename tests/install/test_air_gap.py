"""An installation without a way out, by the lines of docs/operations/air-gap.md.

This process, the cluster, its registry and the git server are in a network namespace that has a
loopback and the link to the node, and no route elsewhere.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterator

import pytest

from dev.chart.local import PATIENCE
from dev.cluster.binaries import binary
from dev.images.release import ROOT
from tests.support.installed.alone import alone
from tests.support.installed.chart import Chart, this_chart
from tests.support.installed.life import Tenant
from tests.support.installed.place import Place, place_to_install
from tests.support.waiting import until_sync

pytestmark = [
    pytest.mark.node,
    pytest.mark.images,
    pytest.mark.programs("helm"),
    pytest.mark.timeout(1800),
]

PAGE = ROOT / "docs" / "operations" / "air-gap.md"
REGISTRY = "registry.internal/cloister"
"""Where the page has the images."""
OUTSIDE = ("1.1.1.1", "2606:4700:4700::1111")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with alone(), place_to_install("alone", tmp_path_factory.mktemp("alone")) as made:
        yield made


def lines_of_the_page() -> str:
    """Return the block of the page that copies the images and installs."""
    (block,) = [
        each
        for each in re.findall(r"```\n(.*?)```", PAGE.read_text(), re.DOTALL)
        if "skopeo" in each
    ]
    return str(block)


def follow_the_page(place: Place, chart: Chart) -> None:
    """Run the lines of the page, with the names that they have here."""
    folder, made = place.folder, place.with_chart(chart)
    made.prepare()
    made.write_values(**place.values(chart))
    (folder / "dist").mkdir()
    (folder / "dist" / "images").symlink_to(chart.images)
    # The registry of the cluster speaks plain HTTP; for skopeo that is a setting of the machine.
    plain = f'[[registry]]\nlocation = "{place.cluster.registry}"\ninsecure = true\n'
    settings = folder / ".config" / "containers" / "registries.conf"
    settings.parent.mkdir(parents=True)
    settings.write_text(plain)
    (folder / "bin").mkdir()
    (folder / "bin" / "helm").symlink_to(binary("helm"))
    lines = lines_of_the_page()
    for written in (REGISTRY, f":{chart.version}", chart.package.name):
        assert written in lines, f"{PAGE.name} does not say {written}"
    lines = lines.replace(REGISTRY, place.registry)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", lines],
        cwd=folder,
        env={
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "HOME": str(folder),
            "KUBECONFIG": str(place.cluster.kubeconfig),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr + made.state()


def test_installs_and_serves_without_a_way_out(place: Place) -> None:
    for address in OUTSIDE:
        way = subprocess.run(["ip", "route", "get", address], capture_output=True, check=False)
        assert way.returncode != 0, way.stdout
    chart = this_chart(place.folder)
    follow_the_page(place, chart)

    tenant = Tenant.create(place.with_chart(chart))
    tenant.create_container()
    tenant.wait_until_ready()
    page = until_sync(lambda: served(tenant), within=PATIENCE, what="the page")
    assert page is not None

    # Every image of every Pod came from the registry inside.
    pods = json.loads(place.cluster.kubectl("get", "pods", "-A", "-ojson"))["items"]
    images = {
        each["image"]
        for pod in pods
        for each in (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ()))
    }
    assert images
    assert [each for each in images if not each.startswith(f"{place.cluster.registry}/")] == []


def served(tenant: Tenant) -> str | None:
    """Return the page of the Container, of which the API signed the certificate; None = not yet."""
    try:
        page = tenant.page()
    except OSError:
        return None
    return page.body if "cloister" in page.issuer.lower() else None

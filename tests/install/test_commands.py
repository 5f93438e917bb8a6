"""The shell commands of runbooks and manuals, run as printed against an installation by the chart.

A command is run, or is in `LEFT_OUT` with the reason why not.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.chart.helm import NAMESPACE as SYSTEM
from tests.support.installed.chart import this_chart
from tests.support.installed.pages import DOCS, Reader, blocks
from tests.support.installed.place import place_to_install
from tests.support.servers.postgres import postgres

pytestmark = [
    pytest.mark.node,
    pytest.mark.images,
    pytest.mark.programs("helm"),
    pytest.mark.timeout(1800),
]

# In the order in which one follows them: the first page makes what the others look at.
PAGES = (
    *("install.md", "operations.md", "ledger.md", "certificates.md"),
    *(f"operations/{name}.md" for name in ("availability", "sizing", "tracing", "air-gap")),
    *sorted(str(path.relative_to(DOCS)) for path in (DOCS / "runbooks").iterdir()),
    *("operations/secrets.md", "operations/upgrade.md"),
)
DONE = "the fixture does it, or tests/install/test_install.py"
ENDS = "it ends the installation; tests/install/test_install.py does it"
BUILD = "it needs a registry to push to; tests/release/whole does it"
NODE = "it is run on the machines of nodes"
CRON = "tests/install/test_restore.py has backups"
LEFT_OUT = {
    "install.md": {
        "kubectl create namespace cloister-system": DONE,
        "kubectl label namespace cloister-system": DONE,
        "helm install cloister": DONE,
        "make ": BUILD,
        "kind create cluster": "tests/kind does it",
        "sed ": "tests/install/test_take_over.py installs in that way",
        "kubectl delete ctr --all --all-namespaces": ENDS,
        "kubectl delete org --all": ENDS,
        "helm uninstall": ENDS,
        "kubectl delete crd": ENDS,
        "kubectl delete validatingadmissionpolicies": ENDS,
        "kubectl delete namespace": ENDS,
    },
    "operations.md": {"kubectl krew install": "tests/release/supply does it"},
    "operations/availability.md": {"kubectl drain": "tests/cluster/test_updates.py drains a node"},
    "operations/air-gap.md": {
        "make ": BUILD,
        "for image in": "tests/install/test_air_gap.py copies images in that way",
        "helm install cloister": DONE,
    },
    "runbooks/CloisterBackupOld.md": {"kubectl -n cloister-system get cronjob": CRON},
    "runbooks/CloisterCertificateOrdersFail.md": {"dig ": "no name server is part of it"},
    "runbooks/CloisterClockOff.md": {"timedatectl": NODE, "chronyc": NODE},
}


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    chart = this_chart(tmp_path)
    with place_to_install("commands", tmp_path, chart) as place:
        made = place.with_chart(chart)
        made.prepare()
        place.install("install", chart)
        # What pages take for given: a new token of the source, a reporter, an empty PostgreSQL.
        (tmp_path / "new-token").write_text("token")
        made.run("reporter", "create", "router")
        address = place.cluster.host_address
        with postgres(address) as database:
            url = f"postgresql://tester@{address}/{database.empty()}"
            made.apply(
                {
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "metadata": {"name": "ledger", "namespace": SYSTEM},
                    "stringData": {"url": url},
                }
            )
            yield Reader(place, chart, {"ledger": {"postgresql": {"existingSecret": "ledger"}}})


def test_every_command_works_as_printed(reader: Reader) -> None:
    failed = [
        failure
        for page in PAGES
        for block in blocks(page)
        if (failure := reader.follow(page, block, LEFT_OUT.get(page, {})))
    ]
    assert not failed, "\n\n".join(failed)
    named = {(page, command) for page, commands in LEFT_OUT.items() for command in commands}
    assert reader.left_out == named

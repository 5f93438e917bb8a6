"""The shell commands of runbooks and manuals, run as printed against an installation by the chart.

What a reader replaces (`NAME`) is replaced as `filled` does. A command is run, or is in `LEFT_OUT`
with the reason why not.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent

import pytest

from dev.chart.local import PATIENCE
from dev.cluster.binaries import binary
from dev.demo import repository
from dev.demo.manifests import NAMESPACE
from tests.support.installed.chart import Chart, this_chart
from tests.support.installed.place import TAGS, Place, place_to_install

pytestmark = [
    pytest.mark.node,
    pytest.mark.images,
    pytest.mark.programs("helm"),
    pytest.mark.timeout(1800),
]

DOCS = Path(__file__).parents[2] / "docs"
# In the order in which one follows them: the first page makes what the others look at.
PAGES = (
    *("install.md", "operations.md", "ledger.md", "certificates.md"),
    *(f"operations/{name}.md" for name in ("availability", "sizing", "tracing", "air-gap")),
    *sorted(str(path.relative_to(DOCS)) for path in (DOCS / "runbooks").iterdir()),
    *("operations/secrets.md", "operations/upgrade.md"),
)
BLOCK = re.compile(r"(?ms)^ *```(\w*)\n(.*?)^ *```$")
SHELL = {"", "console", "sh"}
COMMAND = re.compile(r"(?m)^(?:.*<<(\w+)\n(?:.*\n)*?\1|for .*\n(?:.*\n)*?done|(?:.+\\\n)*.+)$")
"""A command: with a text that it reads, a loop, or lines that go on after a backslash."""
DONE = "the fixture does it, or tests/install/test_install.py"
ENDS = "it ends the installation; tests/install/test_install.py does it"
BUILD = "it needs a registry to push to; tests/release/whole does it"
NODE = "it is run on the machines of nodes"
LEFT_OUT = {
    "install.md": {
        "kubectl create namespace cloister-system": DONE,
        "kubectl label namespace cloister-system": DONE,
        "helm install cloister": DONE,
        "make ": BUILD,
        "kind create cluster": "tests/kind does it",
        "sed ": "tests/install/test_take_over.py installs in that way",
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
    "runbooks/CloisterCertificateOrdersFail.md": {"dig ": "no name server is part of it"},
    "runbooks/CloisterClockOff.md": {"timedatectl": NODE, "chronyc": NODE},
}
GREP = 'grep() { command grep "$@" || [ $? -eq 1 ]; }\nexport -f grep\n'
"""A log without the line that is looked for is a healthy one."""


def blocks(page: str) -> Iterator[list[str]]:
    """Yield the commands of each block of a page."""
    for language, block in BLOCK.findall((DOCS / page).read_text(encoding="utf-8")):
        if language in SHELL:
            found = [each[0] for each in COMMAND.finditer(dedent(block))]
            yield [each for each in found if not each.startswith("#")]


@dataclass(slots=True)
class Reader:
    """Somebody with a kubeconfig, kubectl, its plugin and Helm, who follows pages."""

    place: Place
    chart: Chart
    left_out: set[tuple[str, str]] = field(default_factory=set)
    """What was left out: page, and beginning of a command."""

    def filled(self, command: str) -> str:
        """Put in what a reader knows: names, files, the chart's place, the size of this node."""
        values = self.place.with_chart(self.chart).write_values(**self.place.values(self.chart))
        release = "oci://registry.example.com/cloister/charts/cloister --version NEW"
        known = {
            release: str(self.chart.package),
            "-f values.yaml": f"-f {values}",
            "spec: {default: true}": (
                "spec: {default: true, overcommit: {cpuPercent: 5, memoryPercent: 2}}"
            ),
            "{repo: OWNER/NAME, tag: v1.0.0}": f"{{repo: {repository.REPO}, tag: {TAGS[0]}}}",
            "ORG-NAMESPACE": NAMESPACE,
            "ctr NAME": "ctr web",
            " REVISION ": " 1 ",
        }
        for name, value in known.items():
            command = command.replace(name, value)
        if " POD" in command:
            pod = self.place.cluster.kubectl("get", "pod", "-n", NAMESPACE, "-oname")
            command = command.replace("POD", pod.strip())
        if "KEY_ID" in command:
            keys = self.place.with_chart(self.chart).run(
                "admin-key", "list", "--organization", "acme"
            )
            command = command.replace("KEY_ID", keys.splitlines()[-1].split()[0])
        return command

    def follow(self, page: str, block: list[str]) -> str:
        """Run a block of a page; return what failed, empty if nothing did."""
        left_out = LEFT_OUT.get(page, {})
        run = []
        for command in block:
            match = next((each for each in left_out if command.startswith(each)), None)
            if match is None:
                run.append(self.filled(command))
            else:
                self.left_out.add((page, match))
        script = GREP + "\n".join(run)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.place.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE * 2,
        )
        if done.returncode == 0:
            return ""
        return f"{page}: {done.returncode}\n{script[len(GREP) :]}\n{done.stdout}\n{done.stderr}"

    def environment(self) -> dict[str, str]:
        """Return what the reader's shell has; `cloister` is not there but as a plugin."""
        programs = self.place.folder / "bin"
        if not programs.exists():
            programs.mkdir()
            plugin = Path(sys.executable).with_name("kubectl-cloister")
            for program in (self.place.cluster.bin("kubectl"), binary("helm"), plugin):
                (programs / program.name).symlink_to(program)
        return {
            "PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.place.folder),
            "KUBECONFIG": str(self.place.cluster.kubeconfig),
        }


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    chart = this_chart(tmp_path)
    with place_to_install("commands", tmp_path, chart) as place:
        place.prepare(chart)
        place.install("install", chart)
        # What pages take for given: a new token of the source, and a reporter.
        (tmp_path / "new-token").write_text("token")
        place.with_chart(chart).run("reporter", "create", "router")
        yield Reader(place, chart)


def test_every_command_works_as_printed(reader: Reader) -> None:
    failed = [
        failure
        for page in PAGES
        for block in blocks(page)
        if (failure := reader.follow(page, block))
    ]
    assert not failed, "\n\n".join(failed)
    named = {(page, command) for page, commands in LEFT_OUT.items() for command in commands}
    assert reader.left_out == named

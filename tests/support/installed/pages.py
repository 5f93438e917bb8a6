"""The shell commands of pages, as a reader runs them on an installation by the chart."""

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import Any

from dev.chart.local import PATIENCE
from dev.cluster.binaries import binary
from dev.demo import repository
from dev.demo.manifests import NAMESPACE
from tests.support.installed.chart import Chart
from tests.support.installed.place import TAGS, Place

__all__ = ["DOCS", "Reader", "blocks"]

DOCS = Path(__file__).parents[3] / "docs"
BLOCK = re.compile(r"(?ms)^ *```(\w*)\n(.*?)^ *```$")
SHELL = {"", "console", "sh"}
COMMAND = re.compile(r"(?m)^(?:.*<<(\w+)\n(?:.*\n)*?\1|for .*\n(?:.*\n)*?done|(?:.+\\\n)*.+)$")
"""A command: with a text that it reads, a loop, or lines that go on after a backslash."""
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
    values: dict[str, Any] = field(default_factory=dict)
    """What the file `values.yaml` of a page has in addition."""
    left_out: set[tuple[str, str]] = field(default_factory=set)
    """What was left out: page, and beginning of a command."""

    def follow(self, page: str, block: list[str], left_out: Mapping[str, str]) -> str:
        """Run a block of a page as printed; return what failed, empty if nothing did.

        Parameters
        ----------
        left_out
            Beginning of a command that is not run -> why not.
        """
        run = []
        for command in block:
            match = next((each for each in left_out if command.startswith(each)), None)
            if match is None:
                run.append(self._filled(command))
            else:
                self.left_out.add((page, match))
        script = "\n".join(run)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", GREP + script],
            cwd=self.place.folder,
            env=self._environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE * 2,
        )
        if done.returncode == 0:
            return ""
        return f"{page}: {done.returncode}\n{script}\n{done.stdout}\n{done.stderr}"

    def _filled(self, command: str) -> str:
        """Put in what a reader knows: names, files, the chart's place, the size of this node."""
        made = self.place.with_chart(self.chart)
        values = made.write_values(**self.place.values(self.chart, **self.values))
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
            keys = made.run("admin-key", "list", "--organization", "acme")
            command = command.replace("KEY_ID", keys.splitlines()[-1].split()[0])
        return command

    def _environment(self) -> dict[str, str]:
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

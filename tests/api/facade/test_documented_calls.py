"""docs/calls.md, run as it is against a real facade.

No operator runs here; `Operator` writes what one would report, so that the waits of the page end.
"""

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from cloister_clients.kube import NotFound
from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Container, Domain
from cloister_crds.kinds.container import DesiredState
from tests.api.facade.test_actions import UPDATING
from tests.support.programs.facade import Facade, FacadeInstallation
from tests.support.programs.facade_enclaves import publish
from tests.support.waiting import until

PAGE = Path(__file__).parents[3] / "docs" / "calls.md"
DEADLINE = 120.0
"""Seconds for all blocks of a language."""
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks() -> list[tuple[str, str]]:
    """Return language and text of every block, in order."""
    return [(found[1], found[2]) for found in BLOCK.finditer(PAGE.read_text())]


class Operator:
    """Reports Containers as what they ask for, for the generation that it has read, and Domains."""

    def __init__(self, world: FacadeInstallation) -> None:
        self._world = world
        self._serving: dict[str, tuple[str, str]] = {}

    @contextlib.asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Work until the block ends."""
        done = asyncio.Event()

        async def ended() -> bool:
            for item in await self._world.containers():
                container = Container.read(item)
                if container.status.observed_generation < container.metadata.generation:
                    # It may be deleted at this moment.
                    with contextlib.suppress(NotFound):
                        await self._report(container)
            for item in (await self._world.kube.list(of(Domain), self._world.namespace)).items:
                if "records" not in item.get("status", {}):
                    with contextlib.suppress(NotFound):
                        await publish(self._world, item["metadata"]["name"])
            return done.is_set()

        task = asyncio.create_task(until(ended, within=2 * DEADLINE, every=0.2))
        try:
            yield
        finally:
            done.set()
            await task

    async def _report(self, container: Container) -> None:
        """Report one: stopped, updating while another tag is asked for, else ready."""
        name, tag = container.metadata.name, container.spec.tag
        generation = container.metadata.generation
        if container.spec.state is DesiredState.STOPPED:
            self._serving.pop(name, None)
            stopped = {"phase": "stopped", "update": None, "activeEnclave": ""}
            await self._world.report(name, observedGeneration=generation, **stopped)
            return
        if name not in self._serving:
            enclave = await self._world.enclave(name, name=f"{name}-{generation}-1")
            self._serving[name] = (tag, enclave)
        served, enclave = self._serving[name]
        update = {**UPDATING["update"], "tag": tag} if tag != served else None
        ready = {"phase": "ready", "currentTag": served, "activeEnclave": enclave, "update": update}
        await self._world.report(name, observedGeneration=generation, **ready)


async def run(program: list[str], text: str, folder: Path, environment: dict[str, str]) -> None:
    """Run a program with a text on its standard input; an error shows what it said last."""
    output = folder / "output"
    with output.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            *program,
            stdin=asyncio.subprocess.PIPE,
            stdout=file,
            stderr=asyncio.subprocess.STDOUT,
            cwd=folder,
            env={**os.environ, **environment},
            start_new_session=True,
        )
    try:
        await asyncio.wait_for(process.communicate(text.encode()), DEADLINE)
    except TimeoutError:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    assert process.returncode == 0, f"--- said ---\n{output.read_text()[-3000:]}"


async def test_every_call_of_the_page_works(
    facade: Facade, world: FacadeInstallation, tmp_path: Path
) -> None:
    suffix = f"{world.organization}.test"
    await world.change_organization(
        billing={"containerSubscription": True, "tokenBilling": True},
        entitlements={"privateRegistries": True, "domainSuffixes": [suffix]},
    )
    async with facade.client(world.key) as client:

        async def known() -> bool:
            made = await client.post("/api/keys", json={"name": "first"})
            return made.status_code == 200

        await until(known)
    environment = {
        "CLOISTER_URL": facade.base,
        "CLOISTER_KEY": world.key,
        "REPO": world.repo,
        "DOMAIN": f"api.{suffix}",
    }
    shell = "\n".join(text for language, text in blocks() if language == "sh")
    async with Operator(world).working():
        await run(["bash", "-euxo", "pipefail", "-s"], shell, tmp_path, environment)
        for language, text in blocks():
            if language == "python":
                await run([sys.executable, "-"], text, tmp_path, environment)
    left = [item["metadata"]["name"] for item in await world.containers()]
    assert left == []

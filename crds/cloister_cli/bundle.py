"""``cloister support-bundle``: collects, redacts and writes what support needs, without secrets."""

import asyncio
import base64
import io
import json
import os
import re
import tarfile
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import click

from cloister_cli.doctor.command import check_cluster, cluster_options, document
from cloister_clients.clock import utc_now
from cloister_clients.kube import ConfigError, KindRef, KubeClient, KubeConfig, KubeError
from cloister_clients.kube.kinds import (
    CONFIG_MAP,
    CUSTOM_RESOURCE_DEFINITION,
    EVENT,
    LEASE,
    NAMESPACE,
    NODE,
    POD,
    POLICY,
    POLICY_BINDING,
    SECRET,
    SERVICE,
    of,
)
from cloister_crds.installation import CONFIG_MAP_NAME
from cloister_crds.kinds import KINDS, Container, Organization

REDACTED: Final = "[redacted]"
"""What stands for a secret."""
SHORTEST: Final = 5
"""Characters of the shortest value that is looked for: shorter ones are in every text."""
VALUES: Final = frozenset({"data", "binaryData", "stringData", "members", "customerID", "value"})
"""Fields whose values go; keys of objects and names in lists stay."""
WHOLE: Final = frozenset({"command", "args", "managedFields", "dockerconfigjson"})
"""Fields that go with all that is in them."""
OUR_PREFIXES: Final = (
    *("cloister.dev/", "app.kubernetes.io/", "kubernetes.io/", "node.kubernetes.io/"),
    *("topology.kubernetes.io/", "meta.helm.sh/", "helm.sh/", "pod-security.kubernetes.io/"),
)
"""Prefixes of labels and annotations that tenants do not choose; others may hold anything."""
CREDENTIALS: Final = re.compile(
    r"\b(?:admin_|tk_)[0-9A-Za-z]{20,}"  # keys of this API
    r"|\bgh[a-z]_[0-9A-Za-z]{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}"  # tokens of forges
    r"|\b(?:sk|rk|whsec)_(?:(?:live|test)_)?[0-9A-Za-z]{16,}"  # of Stripe
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"  # JSON Web Tokens
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|(?<=://)[^/\s@:]*:[^/\s@]+(?=@)"  # user and password in addresses
    r"|(?<![\w/.%+-])[\w.%+-]{1,64}@[A-Za-z0-9-]{1,63}\.[A-Za-z0-9.-]{1,189}"  # e-mail addresses
    r"|(?i:(?<=bearer )|(?<=basic )|(?<=password=)|(?<=token=))[^\s\"'&,;]{5,}",
    re.DOTALL,
)
"""What looks like a credential, or like the e-mail address of a person."""


class Redactor:
    """Removes secrets from texts and objects.

    Parameters
    ----------
    values
        Values of secrets; short ones are not looked for.
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        known = {form for value in values if len(value) >= SHORTEST for form in _forms(value)}
        longest_first = sorted(known, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, longest_first))) if known else None

    def text(self, text: str) -> str:
        """Return a text without what is known, or looks like, a secret."""
        if self._known is not None:
            text = self._known.sub(REDACTED, text)
        return CREDENTIALS.sub(REDACTED, text)

    def body(self, body: Any, *, hidden: bool = False) -> Any:
        """Return JSON data without secrets."""
        if isinstance(body, Mapping):
            return {
                self.text(key): self._field(key, value, hidden=hidden)
                for key, value in body.items()
                if key != "managedFields"
            }
        if isinstance(body, list | tuple):
            return [self.body(each, hidden=hidden) for each in body]
        if hidden and body is not None:
            return REDACTED
        return self.text(body) if isinstance(body, str) else body

    def _field(self, key: str, value: Any, *, hidden: bool) -> Any:
        """Return a field without secrets."""
        if key in {"annotations", "labels"} and isinstance(value, Mapping):
            ours = {name: text for name, text in value.items() if name.startswith(OUR_PREFIXES)}
            return {**self.body(ours), **_count(len(value) - len(ours))}
        if key in WHOLE or key.startswith("."):
            return REDACTED
        return self.body(value, hidden=hidden or key in VALUES)


def secret_values(secret: Mapping[str, Any]) -> set[str]:
    """Return the values of a core Secret, and the strings in those that are JSON."""
    found = set()
    for encoded in (secret.get("data") or {}).values():
        text = base64.b64decode(encoded).decode(errors="replace").strip()
        found |= {text, *(line.strip() for line in text.splitlines())}
        try:
            found |= _strings(json.loads(text))
        except ValueError:
            continue
    return found


def _strings(data: Any) -> set[str]:
    """Return every string value in JSON data."""
    if isinstance(data, Mapping):
        return {text for value in data.values() for text in _strings(value)}
    if isinstance(data, list):
        return {text for value in data for text in _strings(value)}
    return {data} if isinstance(data, str) else set()


def _forms(value: str) -> tuple[str, str, str]:
    """Return a value as it is, in base64, and as JSON writes it."""
    encoded = base64.b64encode(value.encode(errors="replace")).decode()
    return value, encoded.rstrip("="), json.dumps(value)[1:-1]


def _count(left_out: int) -> dict[str, str]:
    """Return a note of how many entries were left out; empty if there is none."""
    return {REDACTED: f"{left_out} others"} if left_out else {}


ORGANIZATIONS: Final = "cloister.dev/organization"
OURS: Final = "app.kubernetes.io/managed-by=cloister"
PART: Final = "app.kubernetes.io/part-of=cloister"
APPS: Final = KindRef("apps", "v1", "deployments", "Deployment")
LARGEST: Final = 64 * 1024**2
"""Most bytes of one log or scrape."""

Files = AsyncIterator[tuple[str, str]]


class Collection:
    """Reads one installation.

    Parameters
    ----------
    log_lines
        Lines of each log, from its end.
    """

    def __init__(self, client: KubeClient, system: str, log_lines: int) -> None:
        self._client = client
        self._system = system
        self._log_lines = log_lines
        self._organizations: list[str] = []
        self._redactor = Redactor()
        self.problems: list[str] = []
        """What could not be read, and why."""

    async def files(self) -> Files:
        """Yield names and texts, without secrets."""
        await self._prepare()
        for kind in KINDS:
            yield await self._objects(f"objects/{kind.INFO.plural}.json", of(kind))
        yield await self._objects("cluster/nodes.json", NODE)
        yield await self._objects("cluster/namespaces.json", NAMESPACE, label=ORGANIZATIONS)
        yield await self._objects("cluster/policies.json", POLICY, label=PART)
        yield await self._objects("cluster/policy-bindings.json", POLICY_BINDING, label=PART)
        yield await self._objects("cluster/kinds.json", CUSTOM_RESOURCE_DEFINITION, label=PART)
        yield await self._objects("enclaves/pods.json", POD, label=OURS)
        yield await self._objects("enclaves/services.json", SERVICE, label=OURS)
        for ref in (POD, APPS, LEASE, SERVICE):
            yield await self._objects(f"system/{ref.plural}.json", ref, namespace=self._system)
        yield await self._installation()
        for namespace in (self._system, *self._organizations):
            yield await self._objects(f"events/{namespace}.json", EVENT, namespace=namespace)
        async for name, text in self._programs():
            yield name, text

    def redact(self, text: str) -> str:
        """Return a text of somebody else's without secrets; after `files`."""
        return self._redactor.text(text)

    async def _prepare(self) -> None:
        """Learn the values of secrets and the names of people, to find them wherever they are."""
        namespaces = await self._list(NAMESPACE, label=ORGANIZATIONS)
        self._organizations = [each["metadata"]["name"] for each in namespaces]
        values: set[str] = set()
        for namespace in (self._system, *self._organizations):
            for secret in await self._list(SECRET, namespace=namespace):
                values |= secret_values(secret)
        for container in await self._list(of(Container)):
            variables = container["spec"].get("variables") or ()
            values |= {each["value"] for each in variables if each.get("value")}
        for organization in await self._list(of(Organization)):
            values |= {each["user"] for each in organization["spec"].get("members") or ()}
        self._redactor = Redactor(values)

    async def _objects(
        self, name: str, ref: KindRef, *, namespace: str | None = None, label: str | None = None
    ) -> tuple[str, str]:
        """Read the objects of a kind."""
        found = await self._list(ref, namespace=namespace, label=label)
        return name, self._json([_without_schemas(each) for each in found])

    async def _list(
        self, ref: KindRef, *, namespace: str | None = None, label: str | None = None
    ) -> Iterable[Any]:
        """List objects; none where that is refused."""
        try:
            return (await self._client.list(ref, namespace, label_selector=label)).items
        except KubeError as error:
            where = f" in {namespace}" if namespace else ""
            self._note(f"{ref.plural}{where}: {error}")
            return ()

    async def _installation(self) -> tuple[str, str]:
        """Read the settings that the operator publishes; they hold no secret."""
        name = f"system/{CONFIG_MAP_NAME}.json"
        try:
            found = await self._client.get(CONFIG_MAP, CONFIG_MAP_NAME, self._system)
        except KubeError as error:
            self._note(f"ConfigMap {CONFIG_MAP_NAME}: {error}")
            return name, "{}"
        return name, self._redactor.text(json.dumps(found.get("data"), indent=2))

    async def _programs(self) -> Files:
        """Read logs and metrics of our own programs; never of what enclaves run."""
        for pod in await self._list(POD, namespace=self._system, label=PART):
            place = f"{POD.path(self._system, pod['metadata']['name'])}"
            for container in pod["spec"]["containers"]:
                name = f"{pod['metadata']['name']}-{container['name']}"
                query = {"container": container["name"], "tailLines": str(self._log_lines)}
                for file, more in (("log", {}), ("previous.log", {"previous": "true"})):
                    text = await self._read(f"{place}/log", {**query, **more})
                    if text:
                        yield f"logs/{name}.{file}", text
                for port in container.get("ports") or ():
                    if port.get("name") == "metrics":
                        path = f"{place}:{port['containerPort']}/proxy/metrics"
                        yield f"metrics/{name}.txt", await self._read(path, {})

    async def _read(self, path: str, query: dict[str, str]) -> str:
        """Read a text; empty where that is refused."""
        try:
            return self._redactor.text(await self._client.text(path, query, largest=LARGEST))
        except KubeError as error:
            if "previous" not in query:
                self._note(f"{path}: {error}")
            return ""

    def _json(self, body: Any) -> str:
        """Write JSON without secrets."""
        return json.dumps(self._redactor.body(body), indent=1)

    def _note(self, problem: str) -> None:
        """Note what could not be read."""
        self.problems.append(self._redactor.text(problem))


def _without_schemas(body: dict[str, Any]) -> dict[str, Any]:
    """Leave the schemas of a kind out: its version is known."""
    if body.get("kind") != CUSTOM_RESOURCE_DEFINITION.kind:
        return body
    names = [each["name"] for each in body["spec"]["versions"]]
    return {"metadata": body["metadata"], "versions": names, "status": body.get("status")}


README: Final = """\
A support bundle of Cloister. doctor.json: checks with remedies. objects: Cloister's kinds.
enclaves: Pods and Services of enclaves. system: the operator's namespace. events: by namespace.
logs, metrics: of the operator and the API; nothing that enclaves write. problems.txt: what could
not be read.

Values of variables and Secrets, commands, data of ConfigMaps, members of organizations, and labels
and annotations that others chose are left out. Look through it before you pass it on.
"""


@click.command("support-bundle")
@cluster_options
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Archive to write; default cloister-support-TIME.tar.gz in the present directory.",
)
@click.option(
    "--log-lines",
    type=click.IntRange(1, 1_000_000),
    default=5000,
    show_default=True,
    help="Lines of each log, from its end.",
)
def support_bundle(
    kubeconfig: Path | None,
    context: str | None,
    namespace: str,
    output: Path | None,
    log_lines: int,
) -> None:
    """Collect what somebody who helps needs to see, without secrets, in one archive.

    The more the caller may read, the more it holds. It reads Secrets, where it may, only to find
    their values in other texts.
    """
    try:
        config = KubeConfig.load(kubeconfig, context)
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    now = utc_now()
    path = output or Path(f"cloister-support-{now:%Y%m%dT%H%M%SZ}.tar.gz")
    files = asyncio.run(collect(config, namespace, log_lines))
    try:
        write(path, files, now)
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from error
    problems = len(files["problems.txt"].splitlines())
    missing = f"; {problems} things could not be read, see problems.txt" if problems else ""
    click.echo(f"{path}: {len(files)} files{missing}. Look through it before you pass it on.")


async def collect(config: KubeConfig, namespace: str, log_lines: int) -> dict[str, str]:
    """Return the files of a bundle, by name."""
    async with KubeClient(
        config, field_manager="cloister-support", user_agent="cloister-support"
    ) as client:
        collection = Collection(client, namespace, log_lines)
        files = {"README.txt": README} | {name: text async for name, text in collection.files()}
        findings = await check_cluster(config, client, namespace)
    files["doctor.json"] = collection.redact(json.dumps(document(findings), indent=2))
    files["problems.txt"] = "".join(f"{each}\n" for each in collection.problems)
    return files


def write(path: Path, files: dict[str, str], now: datetime) -> None:
    """Write an archive that only its owner may read.

    Raises
    ------
    OSError
        When it exists or cannot be written.
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    folder = path.name.removesuffix(".tar.gz")
    with os.fdopen(handle, "wb") as raw, tarfile.open(fileobj=raw, mode="w:gz") as archive:
        for name, text in files.items():
            content = text.encode()
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size, entry.mtime = len(content), int(now.timestamp())
            archive.addfile(entry, io.BytesIO(content))

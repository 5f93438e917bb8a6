"""The operator's checks for ``cloister doctor``.

What its settings name, and the images that nodes have.
"""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import dns.asyncquery
import dns.exception
import dns.message

from cloister_clients.clock import monotonic
from cloister_clients.findings import Finding, FindingLevel, failed, passed, warned
from cloister_clients.kube import ConfigError, KubeClient, KubeConfig, KubeError
from cloister_clients.kube.kinds import NODE, KindRef
from cloister_clients.registry import RegistryClient
from cloister_clients.registry.errors import RegistryError
from cloister_clients.settings import SettingsError
from cloister_clients.sources import provider_from
from cloister_clients.sources.errors import SourceError, SourceRefused, SourceUnavailable
from cloister_operator.context import USER_AGENT
from cloister_operator.lookups.cluster import (
    OUTDATED_REMEDY,
    GatewayKindsMissing,
    find_gateway_kinds,
)
from cloister_operator.settings import OperatorSettings, read_settings
from cloister_operator.writer import FIELD_MANAGER

LOADED = "every node has it; "
REMEDY = "load it on every node that joins, or push it and correct the settings under registry"


def on_every_node(image: str, nodes: Iterable[dict[str, Any]]) -> bool:
    """Return whether there are nodes, and each of them reports an image.

    Parameters
    ----------
    image
        Reference with a digest.
    nodes
        Nodes. A kubelet reports only its fifty largest images, by their whole names.
    """
    held = [{name for each in _images(node) for name in each.get("names") or ()} for node in nodes]
    return bool(held) and all(image in names for names in held)


def unless_loaded(finding: Finding, image: str, nodes: Iterable[dict[str, Any]]) -> Finding:
    """Return what a registry reported of an image: not a failure if no node queries it."""
    if finding.level is not FindingLevel.FAIL or not on_every_node(image, nodes):
        return finding
    return warned(finding.check, LOADED + finding.message, REMEDY)


def _images(node: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (node.get("status") or {}).get("images") or []
    return found


PROBE = "cloister-doctor/no-such-repository"
"""A repository that nobody has: a source that says so works."""
GATEWAY = KindRef("gateway.networking.k8s.io", "v1", "gateways", "Gateway")
RESOLVER_SECONDS = 3.0
"""Seconds that a name server has for a response."""
DNS_PORT = 53


async def checks(path: Path) -> list[Finding]:
    """Check the operator's settings, and from this machine what they name."""
    try:
        settings = read_settings(path)
    except SettingsError as error:
        return [failed("settings of the operator", str(error), "correct the file")]
    found = [passed("settings of the operator", f"{path} is valid")]
    found.append(await _source(settings))
    found += await _images_of(settings)
    found += await asyncio.gather(
        *(_resolver(str(address)) for address in settings.enclave_network.resolvers)
    )
    found += _domains(settings)
    if settings.gateway is not None:
        found.append(await _gateway(settings))
    return found


async def _source(settings: OperatorSettings) -> Finding:
    """Ask the source for a repository that does not exist."""
    check, remedy = "source of releases", "check sources: its base address, token and authorities"
    base = settings.sources.base
    if base and base.startswith("/") and not Path(base).is_dir():  # noqa: ASYNC240 - once, local
        return failed(check, f"the directory {base} does not exist", remedy)
    try:
        source = provider_from(settings.sources)
    except OSError as error:
        return failed(check, str(error), remedy)
    try:
        await source.latest(PROBE)
    except (SourceUnavailable, SourceRefused) as error:
        return failed(check, f"{error.reason}: {error.message}", remedy)
    except SourceError:
        pass
    finally:
        await source.aclose()
    return passed(check, f"{settings.sources.base or settings.sources.kind.value} responds")


async def _images_of(settings: OperatorSettings) -> list[Finding]:
    """Ask the registries for the images that every enclave has, and the nodes when they fail."""
    wanted = {"shimImage": settings.shim_image, "guestImage": settings.guest_image}
    registry = RegistryClient(settings.registry)
    try:
        found = [await _image(registry, setting, image) for setting, image in wanted.items()]
    finally:
        await registry.aclose()
    if all(each.level is FindingLevel.PASS for each in found):
        return found
    nodes = await _nodes(settings)
    return [unless_loaded(each, wanted[each.check], nodes) for each in found]


async def _nodes(settings: OperatorSettings) -> tuple[dict[str, Any], ...]:
    """List the nodes; none where the cluster does not tell."""
    try:
        config = KubeConfig.load(settings.kubeconfig, settings.context)
        async with KubeClient(config, field_manager=FIELD_MANAGER, user_agent=USER_AGENT) as client:
            return (await client.list(NODE)).items
    except (ConfigError, KubeError):
        return ()


async def _image(registry: RegistryClient, setting: str, image: str) -> Finding:
    """Ask a registry for an image."""
    try:
        there = await registry.exists(image)
    except RegistryError as error:
        remedy = f"correct {setting}, or the settings under registry that say how it is reached"
        return failed(setting, f"{error.reason}: {error.message}", remedy)
    if there:
        return passed(setting, f"{image} is there")
    return failed(setting, f"{image} is not there", f"push it, or correct {setting}")


async def _resolver(address: str) -> Finding:
    """Send a name server of enclaves a query; any response will do."""
    check, began = f"resolver {address}", monotonic()
    query = dns.message.make_query(".", "NS")
    try:
        await dns.asyncquery.udp(query, address, timeout=RESOLVER_SECONDS, port=DNS_PORT)
    except (dns.exception.DNSException, OSError) as error:
        remedy = "correct enclaveNetwork.resolvers, or run this where enclaves run"
        return failed(check, f"it does not respond: {str(error) or type(error).__name__}", remedy)
    return passed(check, f"it responds in {(monotonic() - began) * 1000:.0f} ms")


def _domains(settings: OperatorSettings) -> list[Finding]:
    """Read the key of custom domains."""
    if settings.domains is None:
        return []
    try:
        settings.domains.read(settings.service, settings.containers_domain)
    except (OSError, ValueError) as error:
        remedy = "restore the file from the backup: another key breaks the records of all domains"
        return [failed("custom domains", str(error), remedy)]
    return [passed("custom domains", "the installation key can be used")]


async def _gateway(settings: OperatorSettings) -> Finding:
    """Look for the kinds of the Gateway API, and the Gateway that the settings name."""
    check, gateway = "gateway", settings.gateway
    assert gateway is not None
    namespace = gateway.namespace or settings.operator_namespace
    try:
        config = KubeConfig.load(settings.kubeconfig, settings.context)
        async with KubeClient(config, field_manager=FIELD_MANAGER, user_agent=USER_AGENT) as client:
            kinds = await find_gateway_kinds(client)
            if kinds.outdated:
                return warned(check, kinds.outdated, OUTDATED_REMEDY)
            body = await client.get(GATEWAY, gateway.name, namespace)
    except GatewayKindsMissing as error:
        return failed(check, str(error), "install the CRDs of the Gateway API")
    except (ConfigError, KubeError) as error:
        remedy = f"see whether the Gateway {namespace}/{gateway.name} exists"
        return warned(check, f"it could not be checked: {error}", remedy)
    conditions = (body.get("status") or {}).get("conditions") or ()
    if any(each["type"] == "Programmed" and each["status"] == "True" for each in conditions):
        version = kinds.route.version
        return passed(check, f"{namespace}/{gateway.name} is programmed; routes are {version}")
    remedy = f"see its status: kubectl describe gateway {gateway.name} -n {namespace}"
    return warned(check, f"{namespace}/{gateway.name} is not programmed", remedy)

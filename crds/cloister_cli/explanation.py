"""What each container of a file will get, as tables for people."""

import math
from collections.abc import Iterator, Mapping

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cloister_cli.verdict import printable
from cloister_crds.config import ContainerConfig, Egress, ServiceConfig, secret_is_file
from cloister_crds.config.effective import (
    MEGABYTE,
    boot_allowance,
    container_mounts,
    egress_of,
    grace_period,
    shared_memory,
    shared_namespace,
    unset_variables,
)
from cloister_crds.kinds.host import DISK_MB
from cloister_crds.lifecycle.admission.host_requirements import assigned_gpus


def explanation(config: ServiceConfig, *, service: str, variables: Mapping[str, str]) -> None:
    """Print what the enclave and each of its containers get.

    Parameters
    ----------
    service
        The service's name, which names the mount of the verified files.
    """
    console = Console(highlight=False)
    _print(console, "enclave", _enclave(config))
    for container in config.containers:
        rows = _container(config, container, service=service, variables=variables)
        _print(console, f"container {container.name}", rows)
    _print(console, "from outside", _shim(config))


def _print(console: Console, title: str, rows: Iterator[tuple[str, str]]) -> None:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_header=True)
    table.add_column(Text(title), style="bold", no_wrap=True)
    table.add_column("", overflow="fold")
    for name, value in rows:
        table.add_row(Text(name), Text(printable_lines(value)))
    console.print(table)


def printable_lines(text: str) -> str:
    """Escape what would control a terminal, line by line."""
    return "\n".join(printable(line) for line in text.split("\n"))


def _enclave(config: ServiceConfig) -> Iterator[tuple[str, str]]:
    yield "version", config.cvm_version
    yield "processors", str(config.cpus)
    yield "memory", _size(config.memory * MEGABYTE)
    yield "GPUs", str(config.gpus) if config.gpus else "none"
    for model in config.models:
        yield "model", f"{model.name} from {model.repo} at {model.commit}"
    for name, network in config.networks.items():
        yield f"network {name}", _reach(network.egress, network.allow)
    if shared_namespace(config):
        yield "network", "one for all containers (version below 0.10), public addresses"
    yield "time to start", "3600 s by default (the operator's pullDeadlineSeconds)"
    allowance = math.ceil(boot_allowance(config).total_seconds())
    more = f", and {allowance} s for the slowest health check" if allowance else ""
    yield "then to be ready", f"1800 s by default (its progressDeadlineSeconds){more}"
    yield "time to stop", f"{grace_period(config).seconds} s"


def _container(
    config: ServiceConfig,
    container: ContainerConfig,
    *,
    service: str,
    variables: Mapping[str, str],
) -> Iterator[tuple[str, str]]:
    yield "image", container.image
    yield from _process(container)
    yield from _resources(config, container)
    yield "networks", _networks(config, container)
    yield "capabilities", ", ".join(container.cap_add) or "none"
    yield "root file system", _root(container)
    mounts = container_mounts(config, container, service=service)
    shown = (f"{one.path}: {one.what}{', read-only' * one.read_only}" for one in mounts)
    yield "mounts", "\n".join(shown)
    if container.devices:
        yield "devices", "\n".join(container.devices)
    yield from _environment(container, variables)
    yield "restart", _restart(container)
    yield "health", _health(container)


def _root(container: ContainerConfig) -> str:
    if container.read_only:
        return "read-only"
    return (
        f"writable, on the node's disk; with the logs at most {_size(DISK_MB * MEGABYTE)}, "
        "or what the Host's sizing.ephemeralStorageMB says"
    )


def _process(container: ContainerConfig) -> Iterator[tuple[str, str]]:
    if container.entrypoint is not None:
        yield "entrypoint", _words(container.entrypoint)
    if container.command is not None:
        yield "command", _words(container.command)
    if container.working_dir:
        yield "directory", container.working_dir
    user = container.user
    if user is not None:
        yield "user", f"{user.uid}" + (f":{user.gid}" if user.gid is not None else "")
    else:
        yield "user", "as in the image"


def _resources(config: ServiceConfig, container: ContainerConfig) -> Iterator[tuple[str, str]]:
    yield "processors", f"at most {container.cpus:g}" if container.cpus else "all of the enclave"
    memory = container.memory
    yield "memory", f"at most {_size(memory)}" if memory else "all of the enclave"
    shared = shared_memory(config, container)
    others = ", shared with other containers" if container.ipc == "host" else ""
    yield "shared memory", f"{_size(shared)}{others}" if shared else "none"
    gpus = container.gpus
    if gpus is not None:
        named = "number " + ", ".join(map(str, gpus)) if isinstance(gpus, tuple) else str(gpus)
        yield "GPUs", f"{named}{_sharers(config, container)}"
    limit = container.pids_limit
    yield "processes", "up to the limit of the Pod" if limit < 0 else f"at most {limit}"


def _sharers(config: ServiceConfig, container: ContainerConfig) -> str:
    """Return with which containers a container shares GPUs, and what that needs."""
    assigned = assigned_gpus(config, config.gpus)
    own = set(assigned[container.name])
    others = [name for name, numbers in assigned.items() if own & set(numbers)]
    others.remove(container.name)
    if not others:
        return ""
    return f", shared with {', '.join(others)}: needs a Host with gpu.deviceClass"


def _networks(config: ServiceConfig, container: ContainerConfig) -> str:
    parts = []
    if shared_namespace(config):
        parts.append("the enclave's one network, public addresses")
    for name in container.networks or ():
        network = config.networks[name]
        parts.append(f"{name}: {_reach(network.egress, network.allow)}")
    if container.name == config.shim.upstream_container:
        parts.append(f"requests from outside on port {config.shim.upstream_port}")
    egress, _ = egress_of(config, container)
    if not parts:
        return "none: no connection to anything"
    if egress is Egress.CLOSED:
        parts.append("no access to the internet")
    return "\n".join(parts)


def _reach(egress: Egress, allow: tuple[str, ...]) -> str:
    match egress:
        case Egress.CLOSED:
            return "closed, its containers reach each other"
        case Egress.OPEN:
            return "open, all public addresses"
        case Egress.ALLOWLIST:
            return "allowlist: " + (", ".join(allow) or "nothing")


def _environment(
    container: ContainerConfig, variables: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    given = [entry.name for entry in container.env if entry.value is not None]
    if given:
        yield "variables", ", ".join(given)
    bare = [entry.name for entry in container.env if entry.value is None]
    unset = unset_variables(container, variables)
    if bare:
        shown = (f"{name} (the public host name)" if name == "DOMAIN" else name for name in unset)
        known = [name for name in bare if name not in unset]
        yield "at deploy time", ", ".join([*known, *shown])
    secrets = [name for name in container.secrets if not secret_is_file(name)]
    if secrets:
        yield "secrets", ", ".join(secrets)


def _restart(container: ContainerConfig) -> str:
    limit = container.restart_limit
    stop = container.stop_signal or "the image's signal"
    seconds = 10 if container.stop_timeout is None else container.stop_timeout
    times = f", at most {limit} times" if limit else ""
    return f"{container.restart}{times}; stopped by {stop}, killed after {seconds} s"


def _health(container: ContainerConfig) -> str:
    health = container.healthcheck
    if health is None or health.disabled:
        return "not checked"
    times = (
        f"every {health.interval.total_seconds():g} s, {health.retries} failures in a row after "
        f"{health.start_period.total_seconds():g} s fail the deployment"
    )
    return f"{_words(health.test)}\n{times}"


def _shim(config: ServiceConfig) -> Iterator[tuple[str, str]]:
    shim = config.shim
    yield "target", f"{shim.upstream_container}, port {shim.upstream_port}"
    yield "paths", "\n".join(shim.paths)
    yield "all others", "404"
    if shim.origins is None or shim.origins == ("*",):
        yield "origins", "all"
    else:
        yield "origins", "\n".join(shim.origins) or "none"
    if shim.authenticated:
        yield "key needed for", "\n".join(shim.keyed_endpoints) or "nothing"
    if shim.rate_limit:
        yield "rate limit", f"{shim.rate_limit:g} per second, {shim.rate_burst or 1} in one burst"
    if shim.ehbp is not None:
        yield "encrypted bodies", str(shim.ehbp)


def _words(words: tuple[str, ...]) -> str:
    return " ".join(
        word if word.isprintable() and " " not in word else repr(word) for word in words
    )


def _size(amount: int) -> str:
    """Return bytes in the largest unit that fits without a rest, at least in MiB with one."""
    for unit, power in (("GiB", 3), ("MiB", 2), ("KiB", 1)):
        if amount % 1024**power == 0:
            return f"{amount // 1024**power} {unit}"
    return f"{amount} bytes"

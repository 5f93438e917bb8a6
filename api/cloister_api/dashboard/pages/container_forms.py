"""What forms ask of a container: the same fields for a new one and for a change of one."""

from collections.abc import Mapping
from typing import Any

import yaml
from pydantic.alias_generators import to_camel
from starlette.requests import Request

from cloister_api.dashboard.forms import Form
from cloister_api.dashboard.pages.requests import context_of, principal_of
from cloister_api.errors import bad_request
from cloister_crds.kinds.container import Container, ContainerSpec

__all__ = [
    "changes_of",
    "choices_of",
    "container_manifest_of",
    "filled",
    "number_or_text",
    "requested_of",
    "variables_of",
]

SECRET = "secret:"  # noqa: S105 - the first part of a field's name
KEY = "key:"
ON = "on"
MOST_DIGITS = 18
"""Digits of numbers that are worth to be compared with their bounds."""


def choices_of(request: Request) -> dict[str, Any]:
    """Return what the fields offer: of the organization, and only what it may use."""
    context, principal = context_of(request), principal_of(request)
    cache, namespace = context.cache, principal.namespace
    spec = principal.organization.spec
    return {
        "secrets": sorted({each.spec.name for each in cache.secrets_of(namespace)}),
        "keys": sorted(each.metadata.name for each in cache.ssh_keys_of(namespace)),
        "domains": sorted(
            each.spec.domain for each in cache.domains_of(namespace) if each.status.verified
        ),
        "hosts": [each.name for each in context.validation.hosts()]
        if spec.entitlements.host_selection
        else [],
        "gpus": sorted({0, *spec.limits.gpus}) if spec.entitlements.gpu else [],
    }


def requested_of(form: Form) -> dict[str, Any]:
    """Return what a form asks for, by the fields of the REST API.

    Raises
    ------
    ApiError
        400 when a line of the variables has no equals sign, or names one twice.
    """
    return {
        "variables": variables_of(form.whole("variables")),
        "secrets": form.chosen(SECRET),
        "ssh_keys": form.chosen(KEY),
        "debug": form.get("debug") == ON,
        "staging": form.get("staging") == ON,
        "disable_confidential": form.get("disable_confidential") == ON,
        "custom_domain": form.get("custom_domain"),
        "host": form.get("host"),
        "gpus": number_or_text(form.get("gpus")),
    }


def number_or_text(text: str) -> int | str | None:
    """Return a number, the text that is not one, which is refused, or None for an empty one."""
    if not text:
        return None
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS else text


def variables_of(text: str) -> dict[str, str]:
    """Return the variables of a text with a ``NAME=value`` in each line.

    Raises
    ------
    ApiError
        400 when a line has no equals sign, or names one twice.
    """
    found: dict[str, str] = {}
    for line in filter(str.strip, text.split("\n")):
        name, equals, value = line.partition("=")
        if not equals:
            raise bad_request("variables", f"variables: {line} has no =; write NAME=value")
        if name.strip() in found:
            raise bad_request("variables", f"variables: {name.strip()} is there twice; keep one")
        found[name.strip()] = value
    return found


def present(spec: ContainerSpec) -> dict[str, Any]:
    """Return what a container asks for, by the fields of the REST API."""
    return {
        "variables": {each.name: each.value for each in spec.variables},
        "secrets": list(spec.secrets),
        "ssh_keys": list(spec.ssh_keys),
        "debug": spec.debug,
        "staging": bool(spec.staging),
        "disable_confidential": spec.disable_confidential,
        "custom_domain": spec.custom_domain or "",
        "host": spec.host or "",
        "gpus": spec.gpus,
    }


def filled(spec: ContainerSpec) -> Form:
    """Return the form of a container as it is."""
    now = present(spec)
    boxes = {
        **{f"{SECRET}{name}": ON for name in now["secrets"]},
        **{f"{KEY}{name}": ON for name in now["ssh_keys"]},
        **{name: ON for name in ("debug", "staging", "disable_confidential") if now[name]},
    }
    lines = [f"{name}={value}" for name, value in now["variables"].items()]
    return Form(
        {
            **boxes,
            "tag": spec.tag,
            "variables": "\n".join(lines),
            "custom_domain": now["custom_domain"],
            "host": now["host"],
            "gpus": "" if now["gpus"] is None else str(now["gpus"]),
        }
    )


def changes_of(form: Form, spec: ContainerSpec) -> dict[str, Any]:
    """Return what a form changes of a container; what is as it was is left out.

    Raises
    ------
    ApiError
        400 as `requested_of`.
    """
    wanted, now = requested_of(form), present(spec)
    changed = {name: value for name, value in wanted.items() if differs(name, value, now)}
    # An empty choice leaves them as they are.
    for name in ("host", "gpus"):
        if not wanted[name] and wanted[name] != 0:
            changed.pop(name, None)
    tag = form.get("tag")
    return {**changed, **({"tag": tag} if tag and tag != spec.tag else {})}


def container_manifest_of(name: str, namespace: str, changes: Mapping[str, Any]) -> str:
    """Return changes as the part of a manifest that whoever manages the Container writes.

    Parameters
    ----------
    name, namespace
        The Container.
    changes
        What changes, by the fields of the REST API.
    """
    spec = {to_camel(field): value for field, value in changes.items()}
    if "variables" in spec:
        spec["variables"] = [
            {"name": variable, "value": value} for variable, value in spec["variables"].items()
        ]
    if spec.get("customDomain") == "":
        spec["customDomain"] = None
    item = {
        "apiVersion": Container.INFO.api_version,
        "kind": Container.INFO.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }
    return yaml.safe_dump(item, sort_keys=False, allow_unicode=True)


def differs(name: str, value: Any, now: Mapping[str, Any]) -> bool:
    """Return whether a field asks for something else; the order of lists does not count."""
    if isinstance(value, list):
        return set(value) != set(now[name])
    return bool(value != now[name])

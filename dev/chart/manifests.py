"""Templates of the CRDs, policies and roles, rewritten from the plain manifests.

The plain manifests are the one place where policies and roles are written. They name the namespace
and the accounts as a plain installation has them; in a template these follow the release, and what
Hosts may use of their nodes follows the values `nodes`.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cloister_crds.crd_manifests import manifests

SYSTEM: Final = "cloister-system"
"""Namespace of the accounts in the plain manifests."""
NAMESPACE: Final = "{{ .Release.Namespace }}"
LABELS: Final = re.compile(r"^  labels:\n    app\.kubernetes\.io/part-of: cloister\n", re.MULTILINE)
METADATA: Final = """\
  labels: {{{{- include "cloister.labels" (list $ "{component}") | nindent 4 }}}}
  {{{{- include "cloister.annotations" (list $ {annotations}) | nindent 2 }}}}
"""
KEPT: Final = '(ternary (dict "helm.sh/resource-policy" "keep") dict .Values.{value}.keep)'
"""Annotations of what stays on `helm uninstall`."""
SERVED: Final = (
    '.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"'
)
"""Whether the cluster has mutating admission policies: from Kubernetes 1.36."""
OF_NODES: Final = re.compile(
    r"(  - name: (modelDirectories|attestationSockets|machineRuntimeClasses|privilegedLauncher)\n"
    r"(?: *#.*\n)* +expression: )'.*'$",
    re.MULTILINE,
)
"""A variable of a policy that says what Hosts may use of their nodes, which is a value."""
NOTICE: Final = "{{{{- /* Generated from {source} by `make crds`; do not edit. */ -}}}}\n"


def templates(root: Path) -> Iterator[tuple[str, str]]:
    """Return each template with its path in the chart's folder of templates.

    Raises
    ------
    ValueError
        When a manifest names the namespace in a way that is not rewritten.
    """
    for name, text in manifests().items():
        body = _with_metadata(_literal(text), "crds", KEPT.format(value="crds")).rstrip("\n")
        notice = NOTICE.format(source=f"crds/manifests/crds/{name}")
        yield (
            f"crds/{name}",
            f"{notice}{{{{- if .Values.crds.enabled }}}}\n{body}\n{{{{- end }}}}\n",
        )
    folder = root / "crds" / "manifests"
    for path in sorted((folder / "policies").glob("*.yaml")):
        text = follow_release(path.read_text(encoding="utf-8"))
        body = _with_metadata(text, "policies", KEPT.format(value="policies"))
        yield f"policies/{path.name}", NOTICE.format(source=_source(path, root)) + body
    for path in sorted((folder / "mutations").glob("*.yaml")):
        text = follow_release(path.read_text(encoding="utf-8")).rstrip("\n")
        body = f"{{{{- if {SERVED} }}}}\n{_with_metadata(text, 'policies')}\n{{{{- end }}}}\n"
        yield f"policies/{path.name}", NOTICE.format(source=_source(path, root)) + body
    for path in sorted((folder / "roles").glob("*.yaml")):
        # Namespace and accounts are the chart's own: they have values.
        if path.name != "accounts.yaml":
            text = _with_metadata(follow_release(path.read_text(encoding="utf-8")), "roles")
            yield f"roles/{path.name}", NOTICE.format(source=_source(path, root)) + text


def _with_metadata(text: str, component: str, annotations: str = "dict") -> str:
    """Return a manifest whose objects have the labels and annotations of the release.

    Raises
    ------
    ValueError
        When an object has other labels than `part-of`.
    """
    made = METADATA.format(component=component, annotations=annotations)
    text, count = LABELS.subn(lambda _: made, text)
    if count != len(re.findall(r"^metadata:", text, re.MULTILINE)):
        raise ValueError(f"an object of {component} has other labels than part-of: cloister")
    return text


def follow_release(text: str) -> str:
    """Return a plain manifest as a template in which namespace and accounts are the release's.

    Raises
    ------
    ValueError
        When it names the namespace in a way that is not rewritten.
    """
    text = _literal(text)
    for program in ("operator", "api"):
        account = f"{{{{ .Values.{program}.serviceAccount.name }}}}"
        user = f"system:serviceaccount:{SYSTEM}:cloister-{program}"
        text = text.replace(user, f"system:serviceaccount:{NAMESPACE}:{account}")
        subject = rf"(- kind: ServiceAccount\n +name: )cloister-{program}$"
        text = re.sub(subject, rf"\g<1>{account}", text, flags=re.MULTILINE)
    text = re.sub(rf"(\bnamespace: ){SYSTEM}$", rf"\g<1>{NAMESPACE}", text, flags=re.MULTILINE)
    text = text.replace(f"'{SYSTEM}'", f"'{NAMESPACE}'")
    text = OF_NODES.sub(r"\1'{{ .Values.nodes.\2 | toJson }}'", text)
    if SYSTEM in text:
        line = next(line for line in text.splitlines() if SYSTEM in line)
        raise ValueError(f"{line.strip()!r} names {SYSTEM} in a way that no template follows")
    return text


def _literal(text: str) -> str:
    """Return a text whose braces are not read as an action of a template."""
    return text.replace("{{", '{{ "{{" }}')


def _source(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()

"""Each door says it in its own words: no word of manifests at REST, and none of REST at manifests.

The sentences are read from the sources, so that a new one cannot be forgotten.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloister_api.schemas.vocabulary import in_api_words
from cloister_api.services.containers.refusals import to_wire
from cloister_crds.problems import Problem

SHARED = (
    "crds/cloister_crds/lifecycle",
    "crds/cloister_crds/kinds/container.py",
    "crds/cloister_crds/kinds/sshkey.py",
    "operator/cloister_operator/rollout",
    "operator/cloister_operator/reconcile/children.py",
)
"""Sources of sentences that both doors show."""
OWN = tuple(
    f"api/cloister_api/{name}"
    for name in ("auth", "errors.py", "http", "routes", "schemas", "services", "usage", "wire.py")
)
"""Sources of sentences that REST alone shows."""
REMEDIES = "crds/cloister_crds/lifecycle/state"
"""What is done about a condition: for docs/reasons.md, never shown at REST."""
OF_MANIFESTS = re.compile(
    r"\bspec\.\w+|\bmetadata\.\w+|\bkubectl\b|\b(csec|cdom|cdep|ctr)\b|\b(customDomain|sshKeys|"
    r"disableConfidential|autoUpdate|githubConnected|defaultStaging|publicKey|secretRef)\b"
)
OF_REST = re.compile(
    r"\b(ssh_keys|custom_domain|host_name|disable_cc_mode|replace_container_id|auto_update|"
    r"github_app_connected|default_staging|public_key|instance_ids|container_id)\b|/api/"
)
ALLOWED: dict[str, str] = {
    "spec.initdata": "a field of Hosts, which administrators write",
    "spec.acceptSharedNetwork": "what a manifest alone can do is said so",
    "metadata.name": "names of objects that REST never makes",
}
NAMED_ON_PURPOSE = (
    re.compile(r" manages .* in its repository"),
    re.compile(r"kubectl get csec"),
    re.compile(r"with kubectl that can be accepted"),
)
"""Sentences of REST whose remedy is a manifest, in a repository or by another tool."""


def sentences(*places: str) -> Iterator[tuple[str, str]]:
    """Yield the texts with a space in sources, each with its place; values in them are ``host``."""
    for place in map(Path, places):
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            if REMEDIES not in str(path):
                for line, text in texts(ast.parse(path.read_text())):
                    if " " in text and "self." not in text:
                        yield f"{path}:{line}", text


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the texts of a module that are no docstrings, each with its line."""
    passed = {
        id(each.value)
        for each in ast.walk(tree)
        if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            passed |= {id(each) for each in node.values}
            parts = (
                each.value if isinstance(each, ast.Constant) else "host" for each in node.values
            )
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and id(node) not in passed:
            yield node.lineno, str(node.value)


def words_in(pattern: re.Pattern[str], text: str) -> list[str]:
    """Return the words of a text that a door does not use."""
    return [each[0] for each in pattern.finditer(text) if each[0] not in ALLOWED]


@pytest.mark.spec("20.8")
def test_no_word_of_manifests_is_said_at_rest() -> None:
    shared = [(place, in_api_words(text)) for place, text in sentences(*SHARED)]
    assert sum(place.startswith("crds/") for place, _ in shared) > 100
    own = [(place, text) for place, text in sentences(*OWN) if "vocabulary" not in place]
    found = [
        (place, words_in(OF_MANIFESTS, text))
        for place, text in (*shared, *own)
        if not any(each.search(text) for each in NAMED_ON_PURPOSE)
    ]
    assert [(place, words) for place, words in found if words] == []


@pytest.mark.spec("20.8")
def test_no_word_of_rest_is_said_at_manifests() -> None:
    found = [
        (place, words_in(OF_REST, text))
        for place, text in sentences("crds/cloister_crds", "operator/cloister_operator")
    ]
    assert [(place, words) for place, words in found if words] == []


@pytest.mark.spec("20.8")
@pytest.mark.parametrize(
    ("manifest", "rest"),
    [
        (
            "spec.host needs a right; set spec.name, spec.customDomain and disableConfidential.",
            "host_name needs a right; set name, custom_domain and disable_cc_mode.",
        ),
        (
            "autoUpdate needs githubConnected: true; leave out one of the two",
            "auto_update needs github_app_connected: true; leave out one of the two",
        ),
        (
            "The container is stopped; set spec.state to Running to start it.",
            "The container is stopped; start it.",
        ),
        (
            "It waits. Set spec.promote to b, or accept the update, to promote it.",
            "It waits. Accept the update to promote it.",
        ),
        (
            "name another Host, or accept that with spec.acceptSharedNetwork.",
            "name another Host; with kubectl that can be accepted (spec.acceptSharedNetwork).",
        ),
        ("the hosts that you name are up", "the hosts that you name are up"),
    ],
)
def test_a_sentence_has_the_words_of_its_door(manifest: str, rest: str) -> None:
    assert in_api_words(manifest) == rest
    assert to_wire(Problem("spec.host", "A", manifest)).message == rest
    assert in_api_words(rest) == rest

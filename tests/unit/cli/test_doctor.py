"""What the doctor says of kinds and nodes, from objects as the API server returns them."""

from typing import Any

import pytest

from cloister_cli.doctor.cluster import check_nodes, kind_findings
from cloister_cli.doctor.command import print_findings
from cloister_clients.findings import FindingLevel, failed

SCHEMA = {"openAPIV3Schema": {"type": "object"}}


def kind(**changes: Any) -> dict[str, Any]:
    """Return a CustomResourceDefinition that is served."""
    version = {"name": "v1alpha1", "served": True, "schema": SCHEMA, **changes.pop("version", {})}
    status = {
        "conditions": [{"type": "Established", "status": "True"}],
        "storedVersions": ["v1alpha1"],
        **changes,
    }
    return {"spec": {"versions": [version]}, "status": status}


@pytest.mark.parametrize(
    ("present", "level", "text"),
    [
        (kind(), None, ""),
        (kind(conditions=[]), FindingLevel.FAIL, "does not serve it"),
        (kind(storedVersions=["v1alpha1", "v1beta9"]), FindingLevel.FAIL, "stored as v1beta9"),
        (kind(version={"served": False}), FindingLevel.FAIL, "not served as v1alpha1"),
        (kind(version={"schema": {}}), FindingLevel.WARN, "schema is not that of this version"),
    ],
)
def test_a_kind(present: dict[str, Any], level: FindingLevel | None, text: str) -> None:
    found = kind_findings("things.cloister.dev", present, kind())
    assert [each.level for each in found] == ([level] if level else [])
    assert all(text in each.message and each.remedy for each in found)


def node(*, ready: str = "True", handlers: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a node."""
    info = {"kernelVersion": "6.1.0", "containerRuntimeVersion": "containerd://1.7.0"}
    conditions = [{"type": "Ready", "status": ready}]
    status = {"conditions": conditions, "runtimeHandlers": handlers, "nodeInfo": info}
    return {"metadata": {"name": "n1"}, "status": status}


def test_nodes() -> None:
    able = [{"name": "", "features": {"userNamespaces": True}}]
    kata = [{"name": "kata", "features": {"userNamespaces": True}}, {"name": "", "features": {}}]
    assert [each.level for each in check_nodes([node(handlers=able)])] == [FindingLevel.PASS]
    (unable,) = check_nodes([node(handlers=kata)])
    assert unable.level is FindingLevel.WARN
    assert "kernel 6.1.0, containerd://1.7.0" in unable.message
    (away,) = check_nodes([node(ready="Unknown", handlers=able)])
    assert away.message == "it is not ready"
    assert check_nodes([])[0].message == "there is no node"


def test_what_a_server_says_forges_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    forged = "it says\nPASS  nodes\x1b[2K\x9b2K\u202e"
    print_findings([failed("nodes", forged, forged)])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert all("PASS  nodes" in line and line.isprintable() for line in lines)

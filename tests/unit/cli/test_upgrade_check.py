"""What `cloister upgrade-check` decides: versions apart, stored versions, settings."""

from pathlib import Path
from typing import Any

import pytest

from cloister_cli.doctor.upgrade import dropped_versions, settings_refusals, skew_refusal


@pytest.mark.parametrize(
    ("present", "new", "remedy"),
    [
        ("0.2.0", "0.2.0", ""),
        ("0.2.0", "0.2.7", ""),
        ("0.2.9", "0.3.0", ""),
        ("0.3.0", "0.2.9", ""),
        ("0.1.0", "0.3.0", "go by 0.2 first"),
        ("0.9.0", "0.12.1", "go by 0.10 first"),
        ("0.4.0", "0.2.0", "go by 0.3 first"),
        ("0.9.0", "1.0.0", ""),
        ("0.9.0", "1.1.0", "go by 1.0 first"),
        ("0.9.0", "2.0.0", "go by 1.0 first"),
        ("1.0.0", "0.9.0", "restore a backup of that version instead"),
        ("v0.1.0", "0.3.0-rc.1", "go by 0.2 first"),
        ("latest", "0.3.0", ""),
        ("", "0.3.0", ""),
    ],
)
def test_versions_are_one_minor_version_apart_at_most(present: str, new: str, remedy: str) -> None:
    refused = skew_refusal("operator", present, new)
    assert bool(refused) == bool(remedy)
    if remedy:
        assert refused.startswith(
            f"the operator that runs is Cloister {present}, and this is {new}"
        )
        assert refused.endswith(remedy)


def kind(*versions: str, stored: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a CustomResourceDefinition with versions."""
    return {
        "spec": {"versions": [{"name": each} for each in versions]},
        "status": {"storedVersions": list(stored)},
    }


def test_a_stored_version_that_is_dropped_is_refused() -> None:
    present = kind("v1alpha1", "v1beta1", stored=("v1alpha1", "v1beta1"))
    assert dropped_versions("hosts.cloister.dev", present, kind("v1alpha1", "v1beta1")) == ""
    assert dropped_versions("hosts.cloister.dev", {"spec": {}}, kind("v1beta1")) == ""
    refused = dropped_versions("hosts.cloister.dev", present, kind("v1beta1"))
    assert refused.startswith("objects of hosts.cloister.dev are stored as v1alpha1, which this")
    assert refused.endswith("then take v1alpha1 out of status.storedVersions")


def test_settings_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    assert settings_refusals(tmp_path) == []
    (tmp_path / "operator.yaml").write_text("{workers: many}")
    (tmp_path / "api.yaml").write_text(
        "{ledger: {path: /x, keyMaterial: /y}, sources: {kind: svn}}"
    )
    api, operator = settings_refusals(tmp_path)
    assert "workers" in operator
    assert str(tmp_path / "operator.yaml") in operator
    assert "sources.kind" in api
    assert api.endswith("correct the values of the chart")

"""Values of the chart: what is refused, by schema or with a sentence; each is explained."""

from collections.abc import Mapping
from typing import Any

import jsonschema
import pytest
import yaml

from dev.chart.documents import readme_text, values_text
from dev.chart.program_values import ValuesSection
from dev.chart.schema import SQLITE_SENTENCE, schema
from dev.images.release import ROOT
from tests.support.programs.helm import CHART, FULL, LEAST, Helm

pytestmark = pytest.mark.programs("helm")

KEYS = {"keys": {"existingSecret": "own-keys"}}
SQLITE = LEAST | KEYS
POSTGRES = SQLITE | {"ledger": {"postgresql": {"existingSecret": "database"}}}


def changed(values: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return values with another one at a path; None removes what is there."""
    first, _, rest = path.partition(".")
    made = dict(values)
    if rest:
        made[first] = changed(made.get(first, {}), rest, value)
    elif value is None:
        made.pop(first, None)
    else:
        made[first] = value
    return made


@pytest.mark.parametrize("values", [SQLITE, POSTGRES, FULL, {}])
def test_lint_is_content(helm: Helm, values: Mapping[str, Any]) -> None:
    done = helm.on_chart("lint", values, "--strict")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("replicas", 3),
        ("operator.replica", 3),
        ("operator.settings.worker", 3),
        ("operator.settings.lease.renew", 3),
        ("operator.settings.domains", {"target": "dns.example.com", "installationKeyFile": "/x"}),
        ("operator.settings.containersDomain", "other.example.com"),
        ("operator.settings.shimImage", "x"),
        ("api.settings.metering", True),
        ("api.settings.listen", {"port": 1}),
        ("api.settings.development", True),
        ("api.settings.dashboard", {"address": "https://x.example", "listen": {"port": 1}}),
        ("api.autoscaling.minimum", 3),
        ("sources.token", "x"),
        ("registry.mirror", {}),
        ("images.guest.version", "x"),
        ("ledger.sqllite", {}),
        ("uninstall.forced", True),
    ],
)
def test_an_unknown_value_is_refused(helm: Helm, path: str, value: Any) -> None:
    last = ""
    if isinstance(value, dict):
        last = next((each for each in ("installationKeyFile", "listen") if each in value), "")
    refused = helm.refusal(changed(SQLITE, path, value))
    assert "additional properties" in refused
    assert f"'{last or path.rpartition('.')[2]}'" in refused


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("operator.replicas", -1, "minimum: got -1, want 0"),
        ("operator.settings.workers", "many", "got string, want integer"),
        ("sources.kind", "svn", "'git', 'github', 'gitea'"),
        ("images.shim.digest", "sha256:1", "does not match pattern"),
        ("sources.tokenFile", "/var/token", "got string, want object"),
        ("sources.tokenFile", {"secret": "a", "configMap": "b", "key": "c"}, "oneOf"),
        ("sources.tokenFile", {"secret": "a"}, "missing property 'key'"),
        ("api.service.type", "Public", "does not match pattern"),
        ("containersDomain", "https://containers.example.com", "does not match pattern"),
        ("containersDomain", "Containers_Example", "does not match pattern"),
        ("containersDomain", "*.example.com", "does not match pattern"),
        ("containersDomain", "example.com.", "does not match pattern"),
        ("containersDomain", "example.com:8443", "does not match pattern"),
        ("nodes.modelDirectories", ["/"], "does not match pattern"),
        ("nodes.modelDirectories", ['/srv/"]'], "does not match pattern"),
        ("nodes.attestationSockets", ["unix:///run/aa.sock"], "does not match pattern"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(helm: Helm, path: str, value: Any, told: str) -> None:
    refused = helm.refusal(changed(SQLITE, path, value))
    assert told in refused
    assert "/" + path.replace(".", "/") in refused


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (changed(SQLITE, "containersDomain", None), "containersDomain is required"),
        (changed(SQLITE, "global", None), "global.imageRegistry is required"),
        (changed(SQLITE, "images.guest", None), "images.guest.digest is required"),
        (changed(SQLITE, "images.shim", {"tag": "v1"}), "images.shim.digest is required"),
        (LEAST, "keys.existingSecret is required where Helm does not see the cluster"),
        (
            changed(SQLITE, "authority.enabled", value=True),
            "authority.existingSecret is required where Helm does not see the cluster",
        ),
        (
            changed(FULL, "api.settings.certificates", {"issuer": "own"}),
            "authority.enabled and api.settings.certificates both say who signs",
        ),
        (
            changed(SQLITE, "api.settings", {"certificates": {"requestsPerHour": 9}}),
            "api.settings.certificates.issuer is required without authority.enabled",
        ),
    ],
)
def test_what_is_missing_is_said_in_a_sentence(
    helm: Helm, values: Mapping[str, Any], sentence: str
) -> None:
    assert sentence in helm.refusal(values)


@pytest.mark.parametrize(
    ("path", "value"), [("api.replicas", 2), ("api.autoscaling.enabled", True)]
)
def test_sqlite_with_more_than_one_replica_is_refused(helm: Helm, path: str, value: Any) -> None:
    """Refused twice: by the schema, and by the template for whoever skips that."""
    values = changed(SQLITE, path, value)
    assert SQLITE_SENTENCE in helm.refusal(values)
    skipped = helm.refusal(values, "--skip-schema-validation")
    assert "execution error" in skipped
    assert SQLITE_SENTENCE in skipped
    assert "got string, want" in helm.refusal(changed(SQLITE, path, SQLITE_SENTENCE))
    assert helm.rendered(changed(POSTGRES, path, value))


def test_a_parent_chart_may_have_globals_of_its_own(helm: Helm) -> None:
    assert helm.rendered(changed(SQLITE, "global.storageClass", "fast"))


def test_values_are_those_of_the_model_and_fit_the_schema_and_have_rows() -> None:
    text = values_text()
    assert text == (CHART / "values.yaml").read_text(encoding="utf-8")
    jsonschema.Draft202012Validator(schema()).validate(yaml.safe_load(text))
    page = readme_text((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "| `api.service.port` | `80` | Its port, which speaks plain HTTP" in page


def test_a_value_without_a_docstring_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Bare(ValuesSection):
        size: int = 1

    monkeypatch.setattr("dev.chart.documents.ChartValues", Bare)
    with pytest.raises(ValueError, match=r"Bare\.size has no docstring"):
        values_text()

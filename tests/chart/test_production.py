"""The values of docs/production.md: the chart takes them, and both programs read what it makes."""

import re
from pathlib import Path

import pytest
import yaml

from cloister_api.settings import ApiSettings
from cloister_operator.settings import read_settings
from tests.chart.test_programs import settings_file
from tests.support.programs.helm import LEAST, Helm

pytestmark = pytest.mark.programs("helm")

PAGE = Path("docs/production.md")


def test_the_values_of_the_page_are_an_installation(helm: Helm) -> None:
    (text,) = re.findall(r"(?ms)^```yaml\n(.*?)^```$", PAGE.read_text(encoding="utf-8"))
    keys = {"keys": {"existingSecret": "own-keys"}}  # Helm does not see a cluster here
    rendered = helm.rendered(LEAST | keys | yaml.safe_load(text))
    operator = read_settings(settings_file(rendered, "operator", helm.folder))
    assert operator.containers_domain == "example-containers.net"
    assert operator.gateway is not None
    assert operator.signed_certificates
    api = ApiSettings.read(settings_file(rendered, "api", helm.folder))
    assert api.certificates is not None
    assert api.certificates.acme is not None
    assert api.dashboard is not None
    assert api.dashboard.oidc is not None
    assert rendered["Deployment", "cloister-system", "cloister-api"]["spec"]["replicas"] == 2
    kinds = {kind for kind, _, _ in rendered}
    assert {"HTTPRoute", "ServiceMonitor", "PrometheusRule", "CronJob"} <= kinds
    # What the page has made before, and nothing else but the chart's own keys.
    made = set(re.findall(r"create secret generic (\S+)", PAGE.read_text(encoding="utf-8")))
    named = set(re.findall(r"'secret': {'name': '([^']+)'", str(rendered)))
    assert named == made | {"own-keys"}

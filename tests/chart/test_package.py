"""What is made of the chart: a package that knows its images, one manifest, alerts, dashboards."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.chart.__main__ import main
from dev.chart.package import manifest, package
from dev.images.digests import write
from dev.images.release import Release
from tests.support.programs.helm import CHART, LEAST, Helm, objects

pytestmark = pytest.mark.programs("helm")

NAMES = ("cloister", "cloister-guest", "cloister-shim")
DIGESTS = {name: f"sha256:{str(number) * 64}" for number, name in enumerate(NAMES)}
KEYS = {"keys": {"existingSecret": "own-keys"}}
RELEASED: dict[str, Any] = {name: each for name, each in LEAST.items() if name != "images"} | KEYS
"""All that somebody says who has a packaged chart."""


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    """Provide the digests of images, as `make images` writes them."""
    path = tmp_path / "images.lock"
    write(path, Release("0.0.0-test", "0" * 40, 0), DIGESTS, "pushed.example.com/cloister")
    return path


def test_a_packaged_chart_knows_the_digests_of_its_images(
    tmp_path: Path, lock: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--images", str(lock), "--output", str(tmp_path), "package"]) == 0
    said = re.search(r"saved it to: (\S+\.tgz)", capsys.readouterr().out)
    assert said is not None
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(RELEASED), encoding="utf-8")
    rendering = ("template", "cloister", said[1], "--values", str(values))
    mirrored = Helm(tmp_path).run(*rendering)
    assert mirrored.returncode == 0, mirrored.stderr
    pushed = Helm(tmp_path).run(*rendering, "--set", "global.imageRegistry=")
    for name, digest in DIGESTS.items():
        assert f"registry.example.com/{name}@{digest}" in mirrored.stdout
        assert f"pushed.example.com/cloister/{name}@{digest}" in pushed.stdout


def test_a_release_is_packaged_twice_with_the_same_bytes(tmp_path: Path, lock: Path) -> None:
    """Whenever that is, under the name that it is released by."""
    source = "https://git.example.com/cloister"
    release = Release("9.9.9-rc.1", "0" * 40, 1_000_000_000, source)
    packages = [package(lock, tmp_path / each, release) for each in ("one", "two")]
    assert packages[0].name == "cloister-9.9.9-rc.1.tgz"
    first, second = (each.read_bytes() for each in packages)
    assert first == second
    said = Helm(tmp_path).run("show", "chart", str(packages[0])).stdout
    described = yaml.safe_load(said)
    assert (described["version"], described["appVersion"]) == ("9.9.9-rc.1", "9.9.9-rc.1")
    assert (described["home"], described["sources"]) == (source, [source])
    assert described["annotations"]["artifacthub.io/prerelease"] == "true"
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(RELEASED), encoding="utf-8")
    text = manifest(lock, values, "elsewhere", release)
    assert "app.kubernetes.io/version: 9.9.9-rc.1" in text
    assert text == manifest(lock, values, "elsewhere", release)


def test_a_digest_of_the_values_wins_and_a_tag_means_no_digest(tmp_path: Path, lock: Path) -> None:
    own = f"sha256:{'f' * 64}"
    images = {"cloister": {"tag": "v9"}, "guest": {"digest": own}}
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(RELEASED | {"images": images}), encoding="utf-8")
    asked = ["--images", str(lock), "--output", str(tmp_path)]
    assert main([*asked, "manifest", "--values", str(values)]) == 0
    text = (tmp_path / "install.yaml").read_text(encoding="utf-8")
    assert "registry.example.com/cloister:v9" in text
    assert f"registry.example.com/cloister-guest@{own}" in text
    assert f"registry.example.com/cloister-shim@{DIGESTS['cloister-shim']}" in text


def test_one_manifest_for_those_without_helm(
    tmp_path: Path, lock: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values, output = tmp_path / "values.yaml", tmp_path / "folder"
    values.write_text(yaml.safe_dump(RELEASED), encoding="utf-8")
    asked = ["--images", str(lock), "--output", str(output), "manifest", "--values", str(values)]
    assert main([*asked, "--namespace", "elsewhere"]) == 0
    path = output / "install.yaml"
    assert f"kubectl apply --server-side -f {path}" in capsys.readouterr().out
    found = objects(path.read_text(encoding="utf-8"))
    namespace = found["Namespace", "", "elsewhere"]["metadata"]["labels"]
    assert namespace["pod-security.kubernetes.io/enforce"] == "restricted"
    kinds = {kind for kind, _, _ in found}
    assert {"CustomResourceDefinition", "Deployment", "ValidatingAdmissionPolicy"} <= kinds
    # The check before an uninstall would run at once.
    assert "Job" not in kinds
    values.write_text(yaml.safe_dump({**RELEASED, "keys": {}}), encoding="utf-8")
    assert main(asked) == 1
    assert "keys.existingSecret is required" in capsys.readouterr().err


def test_alerts_and_dashboards_are_those_of_the_files(helm: Helm) -> None:
    chosen: dict[str, dict[str, Any]] = {
        "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
        "dashboards": {"enabled": True},
    }
    rendered = helm.rendered(LEAST | KEYS | {"monitoring": chosen})
    rule = rendered["PrometheusRule", "cloister-system", "cloister"]
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    text = (CHART / "files" / "alerts.yaml").read_text()
    assert rule["spec"] == yaml.safe_load(text)
    base = "https://git.example.com/docs/"
    chosen["prometheusRule"]["runbookBase"] = base
    moved = helm.rendered(LEAST | KEYS | {"monitoring": chosen})
    spec = moved["PrometheusRule", "cloister-system", "cloister"]["spec"]
    assert spec == yaml.safe_load(text.replace("docs/runbooks/", base))
    files = sorted((CHART / "files" / "dashboards").glob("*.json"))
    assert files
    for path in files:
        found = rendered["ConfigMap", "cloister-system", f"cloister-dashboard-{path.stem}"]
        assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
        shown = json.loads(found["data"][f"cloister-{path.name}"])
        assert shown == json.loads(path.read_text(encoding="utf-8"))
    assert "PrometheusRule" not in {kind for kind, _, _ in helm.rendered(LEAST | KEYS)}

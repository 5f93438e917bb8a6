"""Makes a release: builds everything first, then publishes it, then signs it."""

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from dev.chart.helm import NAMESPACE
from dev.chart.package import manifest as chart_manifest
from dev.chart.package import package
from dev.cluster.processes import Progress
from dev.images import digests, registry
from dev.images.build import IMAGES, Build, members_of
from dev.images.release import ROOT, Release
from dev.release import chart_registry, plugin, provenance
from dev.release.changelog import changes_of
from dev.release.errors import ReleaseError
from dev.release.signing import Attested, Signer
from dev.release.verifier import write_programs

CHART: Final = "charts/cloister"
"""Path of the chart below the registry's."""
SUMS: Final = "SHA256SUMS"
PROVENANCE: Final = "provenance.json"
"""The statement about all images and files; with a key the images have it attached as well."""
MANIFEST_VALUES: Final = {
    "containersDomain": "containers.example.com",
    "keys": {"existingSecret": "cloister-own-keys"},
}
"""Values of install.yaml; docs/install.md says what to replace."""


@dataclass(frozen=True, slots=True)
class Assembly:
    """One release.

    Attributes
    ----------
    uv
        The program uv, of the Makefile's version.
    to
        Registry and path, ``host/path``.
    output
        Folder to make.
    downloads
        Address at which `output` will be found; empty = that is not known.
    signer
        None = nothing is signed.
    """

    release: Release
    uv: Path
    to: str
    output: Path
    downloads: str
    signer: Signer | None
    progress: Progress

    def run(self) -> None:
        """Make everything; the folder appears when all is done.

        Raises
        ------
        ImageError, LocalClusterError
            When something cannot be built or pushed.
        ReleaseError
            When the registry has another release of this version, or signing fails.
        """
        scratch = self.output.with_name(f".{self.output.name}.partial")
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        build = Build(ROOT / "dist" / "images", self.uv, self.release, self.progress)
        images = build.run()
        chart, chart_layout = self._write(scratch, build, images)
        published = {name: f"{self.to}/{name}" for name in images}
        for name, digest in images.items():
            self._is_free(published[name], digest)
        self._is_free(f"{self.to}/{CHART}", chart)
        self.progress.say(f"pushing images and chart to {self.to}")
        registry.push(build.layout, images, self.to, self.release.version)
        registry.push_one(
            chart_layout, self.release.version, f"{self.to}/{CHART}", self.release.version
        )
        shutil.rmtree(chart_layout)
        if self.signer is not None:
            references = [f"{published[name]}@{digest}" for name, digest in images.items()]
            self._sign(scratch, build, images, [*references, f"{self.to}/{CHART}@{chart}"])
        if self.output.exists():
            self.output.rmdir()
        scratch.rename(self.output)

    def _write(self, folder: Path, build: Build, images: dict[str, str]) -> tuple[str, Path]:
        """Write the files of the release; return the chart's digest and its layout."""
        self.progress.say("writing chart, manifest, bills, plugin, verifier")
        version, time = self.release.version, self.release.time
        lock = folder / "images.lock"
        digests.write(lock, self.release, images, self.to)
        packed = package(lock, folder, self.release)
        layout = folder / ".chart"
        chart = chart_registry.write_layout(packed, layout, self.release)
        values = folder / ".values.yaml"
        values.write_text(yaml.safe_dump(MANIFEST_VALUES))
        text = chart_manifest(lock, values, NAMESPACE, self.release)
        (folder / "install.yaml").write_text(text, encoding="utf-8")
        values.unlink()
        for bill in sorted((build.target / "sbom").glob("*.cdx.json")):
            shutil.copyfile(bill, folder / bill.name)
        changes = changes_of((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version)
        (folder / "CHANGES.md").write_text(f"# Cloister {version}\n\n{changes}", encoding="utf-8")
        archive = folder / f"kubectl-cloister-{version}.tar.gz"
        (wheel,) = (build.target / "wheel").glob("*.whl")
        plugin.write_archive(self.uv, wheel, archive, time)
        krew = plugin.manifest(archive, version, self.downloads, self.release.source)
        (folder / "krew.yaml").write_text(krew, encoding="utf-8")
        write_programs(folder, version)
        self._write_provenance(folder, images | {CHART: chart})
        (folder / SUMS).write_text(_sums(folder))
        return chart, layout

    def _write_provenance(self, folder: Path, pushed: dict[str, str]) -> None:
        """Write where all files and what is pushed come from."""
        lines = (line.split("  ") for line in _sums(folder).splitlines())
        subjects = {name: digest for digest, name in lines}
        subjects |= {
            f"{self.to}/{name}": digest.removeprefix("sha256:") for name, digest in pushed.items()
        }
        described = provenance.predicate(self.release, self.to, self.downloads)
        text = json.dumps(provenance.statement(subjects, described), indent=1)
        (folder / PROVENANCE).write_text(text + "\n")

    def _is_free(self, repository: str, digest: str) -> None:
        """Raise when the registry has something else of this version."""
        present = registry.digest_of(f"{repository}:{self.release.version}")
        if present not in {"", digest}:
            raise ReleaseError(
                f"{repository}:{self.release.version} is in the registry already, as {present}, "
                f"and this is {digest}: released is released, so take the next version"
            )

    def _sign(
        self, folder: Path, build: Build, images: dict[str, str], references: list[str]
    ) -> None:
        signer = self.signer
        assert signer is not None
        described = folder / ".predicate.json"
        statement = json.loads((folder / PROVENANCE).read_text())
        described.write_text(json.dumps(statement["predicate"]))
        for reference in references:
            self.progress.say(f"signing {reference}")
            signer.sign(reference)
            signer.attest(reference, Attested.PROVENANCE, described)
        for name in IMAGES:
            for architecture, digest in members_of(build.layout, images[name]).items():
                bill = folder / f"{name}-{architecture}.cdx.json"
                signer.attest(f"{self.to}/{name}@{digest}", Attested.BILL, bill)
        described.unlink()
        signer.sign_file(folder / SUMS, folder / f"{SUMS}.sigstore.json")
        (folder / "cosign.pub").write_text(signer.public_key())


def _sums(folder: Path) -> str:
    """Return the checksums of all files, as `sha256sum --check` reads them."""
    return "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(folder.iterdir())
        if path.is_file() and path.name != SUMS
    )

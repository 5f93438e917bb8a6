"""The generated files, and whether they are up to date."""

import json
from pathlib import Path

from cloister_api.main import ROUTERS
from cloister_api.openapi.document import document
from cloister_api.openapi.page import page
from cloister_crds.config.editor_schema import json_schema_text
from cloister_crds.crd_manifests import manifests
from dev.house.finding import Finding

__all__ = ["differences", "files", "write"]

REMEDY = "run `make crds` (python -m dev.house generate) and commit what it writes"


def files(root: Path) -> dict[Path, str]:
    """Return every generated file with its expected content."""
    folder = root / "crds" / "manifests"
    kinds = {folder / "crds" / name: text for name, text in manifests().items()}
    described = document(ROUTERS)
    openapi = json.dumps(described, indent=2, ensure_ascii=False) + "\n"
    return {
        **kinds,
        folder / "service-config.schema.json": json_schema_text(),
        root / "docs" / "api" / "openapi.json": openapi,
        root / "docs" / "api" / "reference.html": page(described),
    }


def write(root: Path) -> list[Path]:
    """Write files that differ, remove obsolete ones, and return both."""
    changed = []
    for path, text in files(root).items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            changed.append(path)
    for path in _obsolete(root):
        path.unlink()
        changed.append(path)
    return changed


def differences(root: Path) -> list[Finding]:
    """Return what `write` would change."""
    found = []
    for path, text in files(root).items():
        place = path.relative_to(root)
        if not path.exists():
            found.append(Finding(place, 0, f"is missing; {REMEDY}"))
        elif path.read_text(encoding="utf-8") != text:
            found.append(Finding(place, 0, f"does not match its source; {REMEDY}"))
    found += [
        Finding(path.relative_to(root), 0, f"is not generated any more; {REMEDY}")
        for path in _obsolete(root)
    ]
    return sorted(found)


def _obsolete(root: Path) -> list[Path]:
    """Return files in the generated folder that are not generated, such as a removed kind's."""
    known = files(root)
    return [
        path
        for path in sorted((root / "crds" / "manifests" / "crds").glob("*"))
        if path not in known
    ]

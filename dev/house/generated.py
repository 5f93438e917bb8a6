"""The files that programs write, and whether they are what would be written now."""

import json
from pathlib import Path

from cloister_api.main import ROUTERS
from cloister_api.openapi.document import document
from cloister_api.openapi.page import page
from cloister_crds.config.editor_schema import json_schema_text
from cloister_crds.schema.crd import manifests
from dev.house.finding import Finding

__all__ = ["differences", "files", "write"]

REMEDY = "run `make crds` (python -m dev.house generate) and commit what it writes"


def files(root: Path) -> dict[Path, str]:
    """Return every generated file and what belongs into it."""
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
    """Write what differs, remove what nobody writes any more, and answer both."""
    changed = []
    for path, text in files(root).items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            changed.append(path)
    for path in _strangers(root):
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
            found.append(Finding(place, 0, f"is not what its source says; {REMEDY}"))
    found += [
        Finding(path.relative_to(root), 0, f"is written by nobody; {REMEDY}")
        for path in _strangers(root)
    ]
    return sorted(found)


def _strangers(root: Path) -> list[Path]:
    """Return files in the generated folder that nothing generates, such as a removed kind's."""
    known = files(root)
    return [
        path
        for path in sorted((root / "crds" / "manifests" / "crds").glob("*"))
        if path not in known
    ]

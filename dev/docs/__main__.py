"""``python -m dev.docs --uv PATH``, the command of ``make docs``."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import click
import yaml

from dev.docs.misread import misread
from dev.docs.staging import stage

ROOT = Path(__file__).resolve().parents[2]
"""Root of the repository."""
ENVIRONMENT = ROOT / ".venv-docs"
"""Where MkDocs is, apart from the project's own packages."""


@click.command()
@click.option("--uv", required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--source",
    default="",
    help="Address of the files on a forge, such as https://HOST/OWNER/NAME/blob/main, for links to "
    "what is no page. Without it they are plain text.",
)
@click.option(
    "--output",
    default=ROOT / "dist" / "site",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder to write the site into; its content is replaced.",
)
def main(uv: Path, source: str, output: Path) -> None:
    """Build the site of the documentation, and fail where a link or a list is not understood."""
    install(uv)
    with tempfile.TemporaryDirectory() as folder:
        pages = Path(folder, "pages")
        configuration = {
            "INHERIT": str(ROOT / "dev" / "docs" / "mkdocs.yml"),
            "docs_dir": str(pages),
            "site_dir": str(output.resolve()),
            "nav": stage(ROOT, pages, source),
        }
        path = Path(folder, "mkdocs.yml")
        path.write_text(yaml.safe_dump(configuration, sort_keys=False), encoding="utf-8")
        done = subprocess.run(
            [ENVIRONMENT / "bin" / "mkdocs", "build", "--strict", "--config-file", path],
            env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).splitlines()
        sys.exit("\n".join(line for line in lines if line and not line.startswith("INFO")))
    if found := misread(output):
        sys.exit("\n".join(f"{line}; put an empty line before it" for line in found))
    print(f"wrote {output}")


def install(uv: Path) -> None:
    """Install the locked MkDocs and its theme into an environment of their own."""
    subprocess.run(
        [uv, "--quiet", "sync", "--frozen", "--no-install-project", "--only-group", "docs"],
        cwd=ROOT,
        env=os.environ | {"UV_PROJECT_ENVIRONMENT": str(ENVIRONMENT)},
        check=True,
    )


if __name__ == "__main__":
    main()

"""The CustomResourceDefinitions of all kinds."""

import subprocess
import sys
from typing import Any, ClassVar

import pytest
import yaml
from pydantic import BaseModel

from cloister_crds.crd_manifests import custom_resource_definition, manifests
from cloister_crds.kinds import KINDS
from cloister_crds.kinds.meta import KindInfo, Resource
from cloister_crds.schema.generator import SchemaError

every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.INFO.kind)


def version_of(kind: type[Resource]) -> dict[str, Any]:
    """Return the one version of a kind."""
    (version,) = custom_resource_definition(kind)["spec"]["versions"]
    answer: dict[str, Any] = version
    return answer


@every_kind
def test_names_scope_and_category(kind: type[Resource]) -> None:
    definition = custom_resource_definition(kind)
    names = definition["spec"]["names"]
    assert definition["metadata"]["name"] == f"{names['plural']}.cloister.dev"
    assert names["listKind"] == f"{kind.INFO.kind}List"
    assert names["categories"] == ["cloister"]
    assert definition["spec"]["scope"] in {"Namespaced", "Cluster"}
    assert definition["spec"]["scope"] == ("Namespaced" if kind.INFO.namespaced else "Cluster")


@every_kind
def test_a_status_has_its_subresource_and_waits_for_the_operator(kind: type[Resource]) -> None:
    version = version_of(kind)
    properties = version["schema"]["openAPIV3Schema"]["properties"]
    has_status = kind.INFO.kind != "HostnameClaim"
    assert ("subresources" in version) is has_status
    assert ("status" in properties) is has_status
    if has_status:
        assert properties["status"]["default"] == {"observedGeneration": -1}


@every_kind
def test_every_field_has_a_text_that_begins_with_its_name(kind: type[Resource]) -> None:
    schema = version_of(kind)["schema"]["openAPIV3Schema"]
    for part in ("spec", "status"):
        if part not in schema["properties"]:
            continue
        for path, name, text in texts(schema["properties"][part], part):
            assert text, f"{path} has no text"
            assert text.startswith(name), f"{path} says {text!r}"


def texts(schema: dict[str, Any], path: str) -> list[tuple[str, str, str]]:
    """Return path, name and text of every field below."""
    found = []
    for name, below in schema.get("properties", {}).items():
        place = f"{path}.{name}"
        found.append((place, name, below.get("description", "")))
        found += texts(below, place)
        found += texts(below.get("items", {}), f"{place}[]")
    return found


@every_kind
def test_columns_show_fields_that_are_there(kind: type[Resource]) -> None:
    schema = version_of(kind)["schema"]["openAPIV3Schema"]
    for column in kind.COLUMNS:
        if column.path.startswith(".metadata."):
            continue
        below = schema
        for name in column.path.split("[")[0].strip(".").split("."):
            below = below["properties"][name]
        assert below["type"] in {"string", "integer", "boolean", "array"}


def test_short_names_are_one_each() -> None:
    shorts = [short for kind in KINDS for short in kind.INFO.short_names]
    assert len(shorts) == len(set(shorts))
    assert set(shorts).isdisjoint({"deploy", "secret", "no", "po", "svc", "cm", "ns", "ep"})


def test_the_same_models_always_make_the_same_bytes() -> None:
    program = (
        "import sys; from cloister_crds.crd_manifests import manifests; "
        "sys.stdout.write(''.join(manifests().values()))"
    )
    told = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert told[0] == told[1] == "".join(manifests().values())


def test_files_are_yaml_with_a_word_of_warning() -> None:
    for name, text in manifests().items():
        assert text.startswith("# Generated")
        assert yaml.safe_load(text)["spec"]["names"]["plural"] == name.removesuffix(".yaml")


def test_a_manifest_is_far_smaller_than_etcd_takes() -> None:
    assert all(len(text.encode()) < 128 * 1024 for text in manifests().values())


def test_a_status_of_another_make_is_refused() -> None:
    class Bare(BaseModel):
        """No conditions."""

    class Odd(Resource):
        """Odd."""

        INFO: ClassVar[KindInfo] = KindInfo(
            kind="Odd",
            plural="odds",
            singular="odd",
            short_names=(),
            namespaced=True,
            description="Odd.",
        )
        status: Bare

    with pytest.raises(SchemaError, match=r"^Odd\.status: must be made of a subclass of Status"):
        custom_resource_definition(Odd)

"""The model catalog: every field of a record, filters, and a file that changes."""

import json
from pathlib import Path
from typing import Any

import pytest

from cloister_api.catalog import Catalog, CatalogError, read_catalog
from tests.support.builders.catalog import RECORD

OPTIONAL = (
    "contextWindowTokens",
    "chat",
    "experimental",
    "deprecated",
    "deprecationDate",
    "safety",
    "chatConfig",
)


def changed(**change: Any) -> dict[str, Any]:
    return {**RECORD, **change}


def write(folder: Path, *records: Any) -> Path:
    path = folder / "catalog.json"
    path.write_text(json.dumps(list(records)))
    return path


def answered(catalog: Catalog, **only: bool) -> list[dict[str, Any]]:
    filters = {"paid": None, "chat": None, **only}
    found: list[dict[str, Any]] = json.loads(catalog.records(**filters))
    return found


@pytest.mark.spec("11.2", "11.3", "11.4", "13.5")
def test_a_record_with_every_field_is_returned_unchanged(tmp_path: Path) -> None:
    assert answered(Catalog(write(tmp_path, RECORD), "cloister")) == [RECORD]


@pytest.mark.spec("11.2")
def test_absent_fields_stay_absent(tmp_path: Path) -> None:
    small = {name: value for name, value in RECORD.items() if name not in OPTIONAL}
    catalog = Catalog(write(tmp_path, small, changed(modelName="b", chat=None)), "cloister")
    assert answered(catalog)[0] == small
    assert "chat" not in answered(catalog)[1]
    assert len(answered(catalog, chat=True)) == 2


@pytest.mark.spec("27.9")
def test_filters_select(tmp_path: Path) -> None:
    free = changed(modelName="free", paid=False)
    ocr = changed(modelName="ocr", type="document", chat=False)
    catalog = Catalog(write(tmp_path, RECORD, free, ocr), "cloister")
    names = {
        key: [one["modelName"] for one in answered(catalog, **only)]
        for key, only in {
            "paid": {"paid": True},
            "unpaid": {"paid": False},
            "chat": {"chat": True},
            "both": {"paid": True, "chat": True},
        }.items()
    }
    assert names == {
        "paid": ["north-7b", "ocr"],
        "unpaid": ["free"],
        "chat": ["north-7b", "free"],
        "both": ["north-7b"],
    }


@pytest.mark.spec("27.10")
def test_models_are_listed_as_inference_clients_know_them(tmp_path: Path) -> None:
    listed = json.loads(Catalog(write(tmp_path, RECORD), "cloister").models)
    assert listed["object"] == "list"
    (model,) = listed["data"]
    head = {name: model[name] for name in ("id", "object", "created", "owned_by")}
    assert head == {
        "id": "north-7b",
        "object": "model",
        "created": 1767225600,
        "owned_by": "cloister",
    }
    assert (model["type"], model["multimodal"], model["deprecated"]) == ("chat", False, True)
    assert model["pricing"] == RECORD["pricing"]


@pytest.mark.spec("11.2")
@pytest.mark.parametrize("name", [name for name in RECORD if name not in OPTIONAL])
def test_a_required_field_that_is_missing_is_named(tmp_path: Path, name: str) -> None:
    record = {key: value for key, value in RECORD.items() if key != name}
    with pytest.raises(CatalogError, match=rf"0\.{name}: is missing"):
        read_catalog(write(tmp_path, record))


@pytest.mark.spec("11.2", "11.3", "11.4")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"type": "video"}, "type"),
        ({"usageMetric": "bytes"}, "usageMetric"),
        ({"endpoint": "v1/chat"}, "endpoint"),
        ({"endpoint": "/v1/other"}, "endpoint must be one of endpoints"),
        ({"createdAt": "2026"}, "createdAt"),
        ({"createdAt": 1.5}, "createdAt"),
        ({"paid": "yes"}, "paid"),
        ({"contextWindowTokens": -1}, "contextWindowTokens"),
        ({"deprecationDate": "soon"}, "deprecationDate: write a date"),
        ({"pricing": {**RECORD["pricing"], "requestPrice": -1}}, r"pricing\.requestPrice"),
        ({"pricing": {**RECORD["pricing"], "requestPrice": "1"}}, r"pricing\.requestPrice"),
        ({"pricing": {"requestPrice": 1}}, r"pricing\.inputTokenPricePer1M: is missing"),
        ({"colour": "red"}, "colour: is not a field of a record"),
        ({"model_name": "x"}, "model_name: is not a field of a record"),
        ({"safety": {"score": 1, "categoryBreakdown": {"a": 1}}}, r"categoryBreakdown\.a"),
        ({"chatConfig": {"intelligence": {"most": 1}}}, r"chatConfig\.intelligence\.most"),
        (
            {"chatConfig": {"reasoningConfig": {"reasoningHistoryPolicy": "none"}}},
            "reasoningHistoryPolicy",
        ),
        ({"chatConfig": {"reasoningConfig": {"effortMap": {"max": "x"}}}}, r"effortMap\.max"),
        ({"chatConfig": {"reasoningConfig": {"params": {"/v1": {}}}}}, r"enable: is missing"),
        (
            {"chatConfig": {"reasoningConfig": {"params": {"/v1": {"enable": {"e": "$EFFORT"}}}}}},
            "params of /v1 use",
        ),
    ],
)
def test_a_record_that_breaks_a_rule_is_named(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    with pytest.raises(CatalogError, match=words) as caught:
        read_catalog(write(tmp_path, changed(**change)))
    assert "catalog.json" in str(caught.value)


@pytest.mark.parametrize("text", ["", "{}", "[", "[1]", "null"])
def test_an_invalid_catalog_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "catalog.json"
    path.write_text(text)
    with pytest.raises(CatalogError):
        read_catalog(path)


def test_a_duplicate_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match="north-7b appears twice"):
        read_catalog(write(tmp_path, RECORD, RECORD))


def test_a_duplicate_field_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, RECORD)
    text = path.read_text()
    path.write_text(text.replace('"paid":', '"paid": false, "paid":', 1))
    with pytest.raises(CatalogError, match=r"0\.paid appears twice; keep one of them"):
        read_catalog(path)


def test_a_change_of_the_file_is_followed_and_a_broken_one_is_not(tmp_path: Path) -> None:
    path = write(tmp_path, RECORD)
    catalog = Catalog(path, "cloister")
    beside = tmp_path / "new.json"
    beside.write_text(json.dumps([changed(modelName="south")]))
    beside.replace(path)
    catalog.reload()
    assert [one["modelName"] for one in answered(catalog)] == ["south"]
    path.write_text("[")
    with pytest.raises(CatalogError):
        catalog.reload()
    assert [one["modelName"] for one in answered(catalog)] == ["south"]
    path.unlink()
    with pytest.raises(CatalogError):
        catalog.reload()
    assert [one["modelName"] for one in answered(catalog)] == ["south"]


def test_without_a_file_there_are_no_models() -> None:
    catalog = Catalog(None, "cloister")
    assert answered(catalog) == []
    assert json.loads(catalog.models) == {"object": "list", "data": []}
    catalog.reload()

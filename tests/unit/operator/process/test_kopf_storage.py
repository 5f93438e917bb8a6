"""The storages of kopf, which store nothing, and its lists, after which a kind is compared."""

import kopf
import pytest
from yarl import URL

from cloister_clients.kube import KindRef
from cloister_clients.kube.kinds import NODE, POD
from cloister_operator.cache.projections import WATCHED_KINDS
from cloister_operator.process.kopf_handlers import kopf_settings, listed_kind

BODY = kopf.Body({"metadata": {"name": "web", "labels": {"a": "b"}}, "spec": {"x": 1}})


def test_the_diff_base_storage_finds_no_difference() -> None:
    storage = kopf_settings(WATCHED_KINDS).persistence.diffbase_storage
    assert storage.fetch(body=BODY) is None
    assert storage.build(body=BODY) == {}


def test_the_storages_never_write_into_an_object() -> None:
    persistence = kopf_settings(WATCHED_KINDS).persistence
    patch = kopf.Patch()
    persistence.diffbase_storage.store(body=BODY, patch=patch, essence=kopf.BodyEssence())
    progress = persistence.progress_storage
    progress.touch(body=BODY, patch=patch, value="now")
    progress.store(key=kopf.HandlerId("x"), record={}, body=BODY, patch=patch)
    progress.purge(key=kopf.HandlerId("x"), body=BODY, patch=patch)
    assert not patch


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("https://server/api/v1/pods?labelSelector=a%3Db&limit=500", POD),
        ("https://server/prefix/api/v1/nodes", NODE),
        ("https://server/api/v1/pods?watch=true&resourceVersion=7", None),
        ("https://server/api/v1", None),
        ("https://server/apis/another.example/v1/pods", None),
    ],
)
def test_each_list_of_kopf_names_its_kind_also_when_it_is_empty(
    url: str, kind: KindRef | None
) -> None:
    lists = {each.ref.path(): each.ref for each in WATCHED_KINDS}
    assert listed_kind(lists, URL(url)) == kind

"""The storages of kopf: they compute nothing and store nothing."""

import kopf

from cloister_operator.cache.projections import WATCHED_KINDS
from cloister_operator.process.kopf_handlers import kopf_settings

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

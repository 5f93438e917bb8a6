"""From a Container to its record, in every state and between two looks of the operator."""

from typing import Any
from uuid import UUID

import msgspec
import pytest

from cloister_api.cache import CachedContainer, project_container
from cloister_api.records.container import (
    NO_LINKS,
    RecordSettings,
    ReplacementLinks,
    container_record,
    host_record,
    not_replaced,
    replacement_links,
    shown_state,
    update_record,
)
from cloister_api.records.record_cache import RecordCache
from cloister_api.schemas.forms import ResponseBody
from cloister_api.wire import encode
from cloister_crds.kinds import Deployment, Host, Organization

SETTINGS = RecordSettings("c.test", webhooks=True)
ORGANIZATION = Organization.read({"metadata": {"name": "acme"}, "spec": {"namespace": "org-acme"}})


def held(
    spec: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    *,
    generation: int = 1,
    **meta: Any,
) -> CachedContainer:
    return project_container(
        {
            "metadata": {
                "name": "web",
                "namespace": "org-acme",
                "uid": "u1",
                "resourceVersion": "5",
                "generation": generation,
                "creationTimestamp": "2026-11-22T04:00:00Z",
                "managedFields": [
                    {
                        "manager": "flux",
                        "time": "2026-11-22T05:00:00Z",
                        "fieldsV1": {"f:spec": {"f:tag": {}, "f:repo": {}}},
                    },
                    {
                        "manager": "cloister-operator",
                        "subresource": "status",
                        "time": "2026-11-22T06:00:00Z",
                        "fieldsV1": {"f:status": {}},
                    },
                ],
                **meta,
            },
            "spec": {"repo": "team/web", "tag": "v1", **(spec or {})},
            "status": {"observedGeneration": 1, **(status or {})},
        }
    )


def fields_of(body: ResponseBody) -> dict[str, Any]:
    """Return the fields of a response as clients read them."""
    fields: dict[str, Any] = msgspec.json.decode(encode(body))
    return fields


def shown(one: CachedContainer, deployment: Deployment | None = None) -> dict[str, Any]:
    return fields_of(container_record(one, ORGANIZATION, deployment, SETTINGS))


@pytest.mark.spec("21.3")
def test_metadata_is_read_for_what_the_record_needs() -> None:
    one = held()
    assert one.id == "u1"
    assert held(annotations={"cloister.dev/id": "theirs"}).id == "u1", "tenants write annotations"
    before = "3f8d9c1e-5a0b-4c57-8f0e-2b6d1a9c7e44"
    assert held(status={"id": before}).id == before
    assert one.updated_at == "2026-11-22T06:00:00.000005Z"
    assert one.owners == {"tag": frozenset({"flux"}), "repo": frozenset({"flux"})}
    assert not one.going
    assert held(deletionTimestamp="2026-11-22T07:00:00Z").going


@pytest.mark.spec("1.3", "21.3")
def test_a_fresh_container_deploys() -> None:
    fields = shown(held())
    assert fields["status"] == "deploying"
    assert fields["current_tag"] == "v1"
    assert fields["domain"] == fields["internal_domain"] == "web.acme.c.test"
    assert fields["created_at"] == "2026-11-22T04:00:00Z"
    absent = {"update_tag", "update_status", "update_type", "error_message", "ssh_port"}
    assert not absent & set(fields)


@pytest.mark.spec("4.2")
def test_the_domain_is_the_custom_one_and_the_generated_one_stays() -> None:
    fields = shown(held({"customDomain": "www.example.test"}))
    assert fields["domain"] == "www.example.test"
    assert fields["internal_domain"] == "web.acme.c.test"
    assert shown(held({"debug": True}))["domain"] == "web.debug.acme.c.test"


@pytest.mark.spec("21.2")
def test_the_domain_is_what_serves() -> None:
    wanted, generated = {"customDomain": "www.example.test"}, "web.acme.c.test"
    served = {"domain": generated, "internalDomain": generated, "activeEnclave": "web-a-1"}
    updating = held(wanted, {"phase": "ready", **served}, generation=2)
    assert shown(updating)["domain"] == generated, "the update to it has not switched"
    lost = held(wanted, {"phase": "pending", **served, "activeEnclave": ""})
    assert shown(lost)["domain"] == generated, "its Domain was lost"
    started = held(wanted, {"phase": "stopped", **served, "activeEnclave": ""}, generation=2)
    assert shown(started)["domain"] == "www.example.test"
    back = {"domain": "www.example.test", "internalDomain": generated, "activeEnclave": "web-a-1"}
    assert shown(held({}, {"phase": "ready", **back}, generation=2))["domain"] == back["domain"]


def test_the_requested_host_shows_before_the_operator_has_looked() -> None:
    reported = {"phase": "stopped", "host": {"name": "old", "gpuType": "H100"}}
    fields = shown(held({"host": "new"}, reported, generation=2))
    assert (fields["host_name"], fields.get("host_gpu_type")) == ("new", None)
    assert shown(held({"host": "new"}, {}))["host_name"] == "new"
    assert shown(held({"host": "old"}, reported, generation=2))["host_gpu_type"] == "H100"
    assert shown(held({}, reported, generation=2))["host_name"] == "old"
    serves = {**reported, "phase": "ready", "observedGeneration": 2}
    assert shown(held({"host": "new"}, serves, generation=2))["host_name"] == "old"


@pytest.mark.spec("21.3")
def test_two_changes_in_one_second_differ() -> None:
    first, second = held(resourceVersion="1999999"), held(resourceVersion="2000000")
    assert first.updated_at != second.updated_at
    assert [each.updated_at for each in (first, held(resourceVersion="41"))] == [
        "2026-11-22T06:00:00.999999Z",
        "2026-11-22T06:00:00.000041Z",
    ]


@pytest.mark.spec("20.10")
def test_identifiers_that_nobody_knows_yet_are_left_out() -> None:
    assert "deployment_id" not in shown(held())


def test_an_update_has_an_identifier_before_its_candidate_is_made() -> None:
    asked = {"tag": "v2", "relaunch": "a"}
    update = fields_of(update_record(held(asked, {"phase": "ready"}, generation=2).container))
    identifier = update.pop("update_deployment_id")
    assert str(UUID(identifier)) == identifier
    assert update == {"has_update": True, "update_tag": "v2", "update_status": "pending"}
    reported = {"enclave": "", "revision": "r", "tag": "v2", "status": "pending"}
    status = {"phase": "ready", "update": reported, "observedGeneration": 2}
    seen = fields_of(update_record(held(asked, status, generation=2).container))
    assert seen["update_deployment_id"] == identifier
    other = held({**asked, "relaunch": "b"}, status, generation=2).container
    assert fields_of(update_record(other))["update_deployment_id"] != identifier


@pytest.mark.spec("22.14")
def test_nothing_is_connected_where_no_webhooks_are_accepted() -> None:
    silent = RecordSettings("c.test", webhooks=False)
    record = container_record(held(), ORGANIZATION, None, silent)
    assert fields_of(record)["github_app_connected"] is False
    assert shown(held())["github_app_connected"] is True
    assert shown(held({"githubConnected": False}))["github_app_connected"] is False


@pytest.mark.spec("7.3")
def test_staging_is_the_deployments_unless_said() -> None:
    deployment = Deployment.read(
        {
            "metadata": {"name": "d", "namespace": "org-acme", "uid": "d1"},
            "spec": {"repo": "team/web", "defaultStaging": True},
        }
    )
    assert shown(held(), deployment)["staging"] is True
    assert shown(held({"staging": False}), deployment)["staging"] is False
    several = {"resources": {"cpus": 2, "memoryMB": 8192, "gpus": 8}, "staging": True}
    assert shown(held(status=several), deployment)["staging"] is False
    assert shown(held({"staging": True}, several), deployment)["staging"] is True
    assert shown(held(), deployment)["deployment_id"] == "d1"


def test_resources_are_the_operators_then_those_of_the_create() -> None:
    asked = {"cloister.dev/asked-resources": '{"cpus": 2, "memoryMB": 8192, "gpus": 0}'}
    assert shown(held(annotations=asked))["memory_mb"] == 8192
    told = {"resources": {"cpus": 4, "memoryMB": 16384, "gpus": 0}}
    assert shown(held(status=told, annotations=asked))["cpus"] == 4
    for broken in ("", "x", '{"cpus": "many"}'):
        spoilt = {"cloister.dev/asked-resources": broken}
        assert shown(held(annotations=spoilt))["cpus"] == 0


@pytest.mark.spec("22.1", "22.4")
@pytest.mark.parametrize(
    ("state", "phase", "word", "update"),
    [
        ("Running", None, "deploying", None),
        ("Running", "pending", "pending", None),
        ("Running", "deploying", "deploying", None),
        ("Running", "started", "started", None),
        ("Running", "ready", "ready", "pending"),
        ("Running", "failed", "deploying", "deploying"),
        ("Running", "stopping", "deploying", None),
        ("Running", "stopped", "deploying", None),
        ("Stopped", None, "stopping", None),
        ("Stopped", "ready", "stopping", None),
        ("Stopped", "failed", "stopping", None),
        ("Stopped", "stopping", "stopping", None),
        ("Stopped", "stopped", "stopped", None),
    ],
)
def test_a_change_shows_before_the_operator_has_looked(
    state: str, phase: str | None, word: str, update: str | None
) -> None:
    status = {"phase": phase} if phase else {}
    one = held({"state": state}, status, generation=2)
    where = shown_state(one.container)
    assert where.phase.value == word
    assert (where.update.status.value if where.update else None) == update
    settled = held({"state": state}, {**status, "observedGeneration": 2}, generation=2)
    assert shown_state(settled.container).phase.value == (phase or "deploying")


def test_after_an_accept_the_next_change_is_not_about_the_old_update() -> None:
    update = {"enclave": "e", "uid": "e1", "revision": "r", "tag": "v2", "status": "ready"}
    status = {"phase": "ready", "activeEnclave": "a", "update": update, "observedGeneration": 2}
    accepted = {"tag": "v2", "promote": "r"}
    shown_update = shown_state(held(accepted, status, generation=3).container).update
    assert shown_update is not None
    assert (shown_update.tag, shown_update.status) == ("v2", "ready")
    stopped = shown_state(held({**accepted, "state": "Stopped"}, status, generation=4).container)
    assert (stopped.phase, stopped.update) == ("stopping", None)
    for more in ({"tag": "v3"}, {"variables": [{"name": "A", "value": "1"}]}):
        later = shown_state(held({**accepted, **more}, status, generation=4).container).update
        assert later is not None
        assert (later.tag, later.status) == (more.get("tag", "v2"), "pending")


@pytest.mark.spec("22.9")
def test_what_is_kept_instead_of_spec_is_what_the_record_shows() -> None:
    served = {"repo": "team/web", "tag": "v1", "variables": [{"name": "A", "value": "1"}]}
    asked = {"tag": "v2", "debug": True, "secrets": ["KEY"], "customDomain": "new.example.test"}
    kept = {"request": served, "insteadOf": {**served, **asked, "variables": []}}
    status = {"phase": "stopped", "currentTag": "v1", "currentCommit": "c", "keptRequest": kept}
    fields = shown(held({**asked, "variables": []}, status))
    assert (fields["requested_tag"], fields["variables"]) == ("v1", {"A": "1"})
    assert (fields["debug"], fields["secrets"]) == (False, [])
    assert fields["domain"] == fields["internal_domain"] == "web.acme.c.test"
    later = shown(held({**asked, "variables": [], "tag": "v3"}, status))
    assert (later["requested_tag"], later["secrets"], later["debug"]) == ("v3", ["KEY"], True)


@pytest.mark.spec("4.5", "21.3", "21.12")
def test_a_failed_update_is_remembered_and_not_in_progress() -> None:
    update = {
        "enclave": "e",
        "uid": "e1",
        "revision": "r",
        "tag": "v2",
        "status": "failed",
        "type": "blue_green",
        "message": "unhealthy: exit 1",
    }
    one = held(status={"phase": "ready", "update": update})
    assert not shown_state(one.container).updating
    fields = shown(one)
    assert fields["error_message"] == "unhealthy: exit 1"
    assert fields["update_type"] == "blue_green"
    assert fields_of(update_record(one.container)) == {
        "has_update": True,
        "update_deployment_id": "e1",
        "update_tag": "v2",
        "update_status": "failed",
    }
    assert fields_of(update_record(held().container)) == {"has_update": False}


@pytest.mark.spec("20.8")
def test_the_words_of_the_operator_become_those_of_the_api() -> None:
    said = "There is no Domain for a.test any more; create it, or set spec.customDomain."
    fields = shown(held(status={"phase": "failed", "message": said}))
    told = "There is no Domain for a.test any more; create it, or set custom_domain."
    assert fields["error_message"] == told


@pytest.mark.spec("4.4")
def test_hosts_show_their_gpu_counts() -> None:
    host = Host.read(
        {
            "metadata": {"name": "h"},
            "spec": {"gpu": {"resource": "nvidia.com/gpu", "counts": [8, 1]}},
        }
    )
    assert fields_of(host_record(host, default=True)) == {
        "name": "h",
        "is_default": True,
        "available_gpu_values": [1, 8],
        "tee": "None",
        "network_isolation": "Container",
        "ready": True,
    }


@pytest.mark.spec("4.4")
@pytest.mark.parametrize(("status", "ready"), [("True", True), ("False", False), ("Unknown", True)])
def test_a_host_shows_its_machines_and_whether_it_is_ready(status: str, *, ready: bool) -> None:
    condition = {
        "type": "Ready",
        "status": status,
        "reason": "NoNode",
        "lastTransitionTime": "2026-11-22T04:00:00Z",
    }
    host = Host.read(
        {
            "metadata": {"name": "h"},
            "spec": {
                "tee": "SNP",
                "teeUnit": "Pod",
                "runtimeClassName": "kata-qemu-snp",
                "networkIsolation": "Pod",
                "cpuType": "EPYC-Genoa",
                "gpu": {"resource": "nvidia.com/gpu", "type": "H100"},
            },
            "status": {"conditions": [condition]},
        }
    )
    assert fields_of(host_record(host, default=False)) == {
        "name": "h",
        "is_default": False,
        "available_gpu_values": [1, 8],
        "tee": "SNP",
        "network_isolation": "Pod",
        "ready": ready,
        "gpu_type": "H100",
        "cpu_type": "EPYC-Genoa",
    }


def test_records_are_encoded_once_and_anew_when_anything_changes() -> None:
    cache, one, two = RecordCache(SETTINGS), held(), held(uid="u2", name="other")
    listed = cache.records([(each, ORGANIZATION, None, NO_LINKS) for each in (one, two)])
    assert msgspec.json.decode(listed) == [shown(one), shown(two)]
    assert cache.records([]) == b"[]"
    assert cache.record(one, ORGANIZATION, None) is cache.record(one, ORGANIZATION, None)
    linked = ReplacementLinks(replaced_by="u2")
    assert b'"replaced_by":"u2"' in cache.record(one, ORGANIZATION, None, linked)
    assert b"replaced_by" not in cache.record(one, ORGANIZATION, None)
    changed = held({"tag": "v2"})
    assert b'"v2"' in cache.record(changed, ORGANIZATION, None)
    deployment = Deployment.read(
        {
            "metadata": {"name": "d", "namespace": "org-acme", "uid": "d1"},
            "spec": {"repo": "team/web"},
        }
    )
    assert b'"d1"' in cache.record(changed, ORGANIZATION, deployment)
    renamed = ORGANIZATION.model_copy(
        update={"metadata": ORGANIZATION.metadata.model_copy(update={"name": "globex"})}
    )
    assert b"web.globex.c.test" in cache.record(changed, renamed, deployment)


@pytest.mark.spec("5.5", "22.4")
@pytest.mark.parametrize(
    ("gpus", "update"), [(1, ("pending", "blue_green")), (8, ("deploying", "replace"))]
)
def test_with_several_gpus_an_update_stops_what_serves_first(
    gpus: int, update: tuple[str, str]
) -> None:
    resources = {"cpus": 2, "memoryMB": 8192, "gpus": gpus}
    status = {"phase": "ready", "resources": resources}
    asked = shown_state(held({"tag": "v2"}, status, generation=2).container).update
    assert asked is not None
    assert (asked.status.value, asked.type.value) == update


@pytest.mark.spec("21.19")
def test_of_a_replacement_the_new_one_is_listed() -> None:
    old, alone = held(name="web", uid="u1"), held(name="other", uid="u9")
    before = "3f8d9c1e-5a0b-4c57-8f0e-2b6d1a9c7e44"
    new = held({"name": "web", "replaces": "web"}, {"id": before}, name="web.2", uid="u2")
    last = held({"name": "web", "replaces": "web.2"}, name="web.3", uid="u3")
    everything = [old, alone, new, last]
    links = replacement_links(everything)
    assert links == {
        "u1": ReplacementLinks(replaced_by=before),
        "u2": ReplacementLinks(replaces="u1", replaced_by="u3"),
        "u3": ReplacementLinks(replaces=before),
    }
    assert not_replaced(everything, links) == [alone, last]
    deleted: dict[str, Any] = {"deletionTimestamp": "2026-11-22T07:00:00Z"}
    going = held({"name": "web", "replaces": "web"}, name="web.2", uid="u2", **deleted)
    assert replacement_links([old, going]) == {}, "the old one is back"
    assert not_replaced([old, alone], replacement_links([old, alone])) == [old, alone]


@pytest.mark.spec("4.1")
def test_what_is_available_is_shown() -> None:
    host = {"name": "h1", "gpuType": "H100", "cpuType": "EPYC"}
    status = {"phase": "ready", "sshPort": 2222, "host": host, "currentTag": "v1"}
    fields = shown(held({"debug": True}, status))
    assert fields["ssh_port"] == 2222
    assert fields["host_name"] == "h1"
    assert (fields["host_gpu_type"], fields["host_cpu_type"]) == ("H100", "EPYC")
    assert fields["current_tag"] == "v1"


@pytest.mark.spec("21.4")
def test_before_the_first_is_ready_the_tag_is_the_requested_one() -> None:
    assert shown(held({"tag": "v7"}, {"phase": "started"}))["current_tag"] == "v7"

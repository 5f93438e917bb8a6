"""What a user's own script sees: the official Python client, which knows nothing of ours.

It is also the second opinion about kubeconfig files: both loaders must become the same user.
"""

import base64
import json
from collections.abc import AsyncIterator, Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client as official
from kubernetes import config as official_config
from kubernetes import watch as official_watch

from cloister_clients.kube import KubeClient, KubeConfig, KubeError
from cloister_clients.kube.errors import Forbidden
from cloister_clients.kube.kinds import CONFIG_MAP, KindRef
from cloister_crds.kinds import Container
from dev.cluster import Cluster
from tests.support.waiting import until_sync

GROUP, VERSION, PLURAL = "cloister.dev", "v1alpha1", "containers"
SELF_REVIEW = KindRef(
    "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False
)
MISSING_EXEC = "/none/such"


def connect(kubeconfig: Path) -> official.ApiClient:
    """Read a kubeconfig with the official loader."""
    configuration = official.Configuration()
    official_config.load_kube_config(str(kubeconfig), client_configuration=configuration)
    return official.ApiClient(configuration)


@pytest.fixture
def user(api_cluster: Cluster) -> Iterator[official.ApiClient]:
    """Provide the official client of an administrator."""
    with connect(api_cluster.kubeconfig) as made:
        yield made


@pytest.fixture
def custom(user: official.ApiClient) -> official.CustomObjectsApi:
    return official.CustomObjectsApi(user)


def container(name: str = "web", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "Container",
        "metadata": {"name": name},
        "spec": {"repo": "acme/web", "tag": "v1.0.0", **spec},
    }


def place(namespace: str) -> tuple[str, str, str, str]:
    """Name the collection of Containers as the official client's functions take it."""
    return GROUP, VERSION, namespace, PLURAL


def test_a_script_creates_reads_lists_patches_and_deletes_a_container(
    custom: official.CustomObjectsApi, namespace: str
) -> None:
    at = place(namespace)
    made = custom.create_namespaced_custom_object(*at, container(), field_validation="Strict")
    assert made["spec"]["repo"] == "acme/web"
    assert Container.read(made).metadata.name == "web"
    assert custom.get_namespaced_custom_object(*at, "web") == made
    listed = custom.list_namespaced_custom_object(*at, limit=10)
    assert [each["metadata"]["uid"] for each in listed["items"]] == [made["metadata"]["uid"]]
    patched = custom.patch_namespaced_custom_object(*at, "web", {"spec": {"tag": "v1.1.0"}})
    assert patched["spec"] == made["spec"] | {"tag": "v1.1.0"}
    assert patched["metadata"]["generation"] == made["metadata"]["generation"] + 1
    custom.delete_namespaced_custom_object(*at, "web")
    assert custom.list_namespaced_custom_object(*at)["items"] == []


def test_a_script_watches_containers(custom: official.CustomObjectsApi, namespace: str) -> None:
    at = place(namespace)
    begin = custom.list_namespaced_custom_object(*at)["metadata"]["resourceVersion"]
    custom.create_namespaced_custom_object(*at, container())
    custom.patch_namespaced_custom_object(*at, "web", {"spec": {"tag": "v1.1.0"}})
    custom.delete_namespaced_custom_object(*at, "web")
    watch = official_watch.Watch()
    seen = []
    for each in watch.stream(
        custom.list_namespaced_custom_object, *at, resource_version=begin, timeout_seconds=60
    ):
        seen.append((each["type"], each["object"]["spec"]["tag"]))
        if each["type"] == "DELETED":
            watch.stop()
    assert seen == [
        ("ADDED", "v1.0.0"),
        ("MODIFIED", "v1.1.0"),
        ("DELETED", "v1.1.0"),
    ]


def test_a_dry_run_of_the_server_judges_a_container_and_keeps_nothing(
    custom: official.CustomObjectsApi, namespace: str
) -> None:
    at = place(namespace)
    tried = custom.create_namespaced_custom_object(*at, container(), dry_run="All")
    assert tried["spec"]["repo"] == "acme/web"
    for body, words in (
        (container(repo="https://github.com/acme/web"), "repo is written owner/name"),
        (container(sshKeys=["me"]), "sshKeys are for debug enclaves only"),
    ):
        with pytest.raises(official.ApiException) as caught:
            custom.create_namespaced_custom_object(*at, body, dry_run="All")
        assert caught.value.status == HTTPStatus.UNPROCESSABLE_ENTITY
        assert words in json.loads(caught.value.body)["message"]
    with pytest.raises(official.ApiException) as caught:
        custom.create_namespaced_custom_object(
            *at, container(colour="red"), dry_run="All", field_validation="Strict"
        )
    assert caught.value.status == HTTPStatus.BAD_REQUEST
    assert 'unknown field "spec.colour"' in json.loads(caught.value.body)["message"]
    assert custom.list_namespaced_custom_object(*at)["items"] == []


def test_a_status_is_written_through_its_subresource_and_by_those_who_may(
    custom: official.CustomObjectsApi, user: official.ApiClient, namespace: str
) -> None:
    at = place(namespace)
    status = {"status": {"observedGeneration": 7}}
    made = custom.create_namespaced_custom_object(*at, container() | status)
    patched = custom.patch_namespaced_custom_object(*at, "web", status)
    for each in (made, patched):
        assert each["status"]["observedGeneration"] == -1  # the default: what was sent is dropped
    tenant_of(user, namespace, name="ada", resources=[PLURAL])
    with connect_as("ada", user) as tenant:
        own = official.CustomObjectsApi(tenant)
        own.patch_namespaced_custom_object(*at, "web", {"spec": {"tag": "v1.1.0"}})
        with pytest.raises(official.ApiException) as caught:
            own.patch_namespaced_custom_object_status(*at, "web", status)
    assert caught.value.status == HTTPStatus.FORBIDDEN
    assert "containers/status" in json.loads(caught.value.body)["message"]
    written = custom.patch_namespaced_custom_object_status(*at, "web", status)
    assert written["status"]["observedGeneration"] == 7


def tenant_of(
    admin: official.ApiClient, namespace: str, *, name: str, resources: list[str]
) -> None:
    """Let a user do everything with some kinds in a namespace."""
    access = official.RbacAuthorizationV1Api(admin)
    rule = {"apiGroups": [GROUP], "resources": resources, "verbs": ["*"]}
    access.create_namespaced_role(namespace, {"metadata": {"name": name}, "rules": [rule]})
    group = "rbac.authorization.k8s.io"
    access.create_namespaced_role_binding(
        namespace,
        {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
            "subjects": [{"apiGroup": group, "kind": "User", "name": name}],
        },
    )
    asked = {"namespace": namespace, "group": GROUP, "resource": resources[0], "verb": "patch"}
    review = {"spec": {"user": name, "resourceAttributes": asked}}
    questions = official.AuthorizationV1Api(admin)

    def may() -> bool:
        return bool(questions.create_subject_access_review(review).status.allowed)

    # The server's authorizer learns of roles by watches of its own.
    until_sync(may, what=f"the rights of {name}")


def connect_as(name: str, admin: official.ApiClient) -> official.ApiClient:
    """Impersonate a user."""
    made = official.ApiClient(admin.configuration)
    made.set_default_header("Impersonate-User", name)
    return made


@pytest.fixture
def account_token(user: official.ApiClient, namespace: str) -> str:
    """Provide a token of a service account of the namespace."""
    core = official.CoreV1Api(user)
    core.create_namespaced_service_account(namespace, {"metadata": {"name": "robot"}})
    issued = core.create_namespaced_service_account_token(
        "robot", namespace, {"spec": {"expirationSeconds": 600}}
    )
    return str(issued.status.token)


Edit = Callable[[dict[str, Any], Path, str], None]
"""Change the user entry of a kubeconfig in a folder; the text is a token."""


def certificate_files(_entry: dict[str, Any], _folder: Path, _token: str) -> None:
    """Leave the client certificate as it is: names of files beside the kubeconfig."""


def certificate_data(entry: dict[str, Any], folder: Path, _token: str) -> None:
    for key in ("client-certificate", "client-key"):
        if key in entry:
            content = (folder / entry.pop(key)).read_bytes()
            entry[f"{key}-data"] = base64.b64encode(content).decode()


def token(entry: dict[str, Any], _folder: Path, text: str) -> None:
    entry.clear()
    entry["token"] = text


def token_file(entry: dict[str, Any], folder: Path, text: str) -> None:
    (folder / "token").write_text(text)
    entry.clear()
    entry["tokenFile"] = "token"


def exec_plugin(entry: dict[str, Any], folder: Path, text: str) -> None:
    answer = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": text, "expirationTimestamp": "2999-01-01T00:00:00Z"},
    }
    program = folder / "plugin.sh"
    program.write_text('#!/bin/sh\ntest -n "$KUBERNETES_EXEC_INFO" && echo "$ANSWER"\n')
    program.chmod(0o700)
    entry.clear()
    entry["exec"] = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "./plugin.sh",
        "env": [{"name": "ANSWER", "value": json.dumps(answer)}],
        "interactiveMode": "Never",
    }


def edited(kubeconfig: Path, folder: Path, edit: Edit, token: str) -> Path:
    """Copy a kubeconfig with the files that it names, and change who its user is."""
    document = yaml.safe_load(kubeconfig.read_text())
    entry, cluster = document["users"][0]["user"], document["clusters"][0]["cluster"]
    for part in (entry, cluster):
        for key in ("client-certificate", "client-key", "certificate-authority"):
            if key in part:
                name = Path(part[key]).name
                (folder / name).write_bytes((kubeconfig.parent / part[key]).read_bytes())
                part[key] = name
    edit(entry, folder, token)
    path = folder / "config"
    path.write_text(yaml.safe_dump(document))
    return path


async def who_am_i(kubeconfig: Path) -> dict[str, Any]:
    """Ask the server, through our own client, who the user of a kubeconfig is."""
    config = KubeConfig.load(kubeconfig)
    async with KubeClient(config, field_manager="tests", user_agent="tests") as ours:
        review = await ours.create(SELF_REVIEW, {})
    return dict(review["status"]["userInfo"])


@pytest.mark.parametrize(
    "edit", [certificate_files, certificate_data, token, token_file, exec_plugin]
)
async def test_both_loaders_of_kubeconfig_files_become_the_same_user(
    api_cluster: Cluster, namespace: str, tmp_path: Path, account_token: str, edit: Edit
) -> None:
    path = edited(api_cluster.kubeconfig, tmp_path, edit, account_token)
    with connect(path) as theirs:
        review = official.AuthenticationV1Api(theirs).create_self_subject_review({})
        assert KubeConfig.load(path).server == theirs.configuration.host
    ours = await who_am_i(path)
    assert ours["username"] == review.status.user_info.username
    assert sorted(ours["groups"]) == sorted(review.status.user_info.groups)
    robot = edit not in (certificate_files, certificate_data)
    assert (ours["username"] == f"system:serviceaccount:{namespace}:robot") is robot


def failing_exec(entry: dict[str, Any], _folder: Path, _token: str) -> None:
    entry.clear()
    entry["exec"] = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": MISSING_EXEC,
        "interactiveMode": "Never",
    }


def impersonated(entry: dict[str, Any], _folder: Path, _token: str) -> None:
    entry["as"] = "nobody"


@pytest.fixture
async def ours(
    api_cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[tuple[Path, KubeClient]]:
    """Provide a changed kubeconfig and our client of it."""
    path = edited(api_cluster.kubeconfig, tmp_path, request.param, "")
    config = KubeConfig.load(path)
    async with KubeClient(config, field_manager="tests", user_agent="tests") as made:
        yield path, made


@pytest.mark.parametrize("ours", [failing_exec], indirect=True)
async def test_only_our_loader_names_an_exec_plugin_that_fails(
    ours: tuple[Path, KubeClient], namespace: str
) -> None:
    path, client = ours
    with pytest.raises(KubeError, match=MISSING_EXEC):
        await client.list(CONFIG_MAP, namespace)
    with connect(path) as theirs, pytest.raises(official.ApiException) as caught:
        official.CoreV1Api(theirs).list_namespaced_config_map(namespace)
    assert caught.value.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}


@pytest.mark.parametrize("ours", [impersonated], indirect=True)
async def test_only_our_loader_gives_up_the_rights_that_a_kubeconfig_gives_up(
    ours: tuple[Path, KubeClient], namespace: str
) -> None:
    path, client = ours
    with pytest.raises(Forbidden, match="nobody"):
        await client.list(CONFIG_MAP, namespace)
    with connect(path) as theirs:
        assert official.CoreV1Api(theirs).list_namespaced_config_map(namespace).items is not None

"""The API server that tests run against is of the release that was asked for."""

import json
import os

from dev.cluster import Cluster
from dev.cluster.binaries import load
from dev.cluster.lifecycle import RELEASE


def test_the_api_server_is_of_the_release_that_was_asked_for(api_cluster: Cluster) -> None:
    other = f"kubernetes-{os.environ.get(RELEASE)}"
    module = load().modules.get(other) or load().modules["kubernetes"]
    told = json.loads(api_cluster.kubectl("version", "-o", "json"))["serverVersion"]
    assert told["gitVersion"] == f"v{module.version}"
    assert (told["major"], told["minor"]) == tuple(module.version.split(".")[:2])

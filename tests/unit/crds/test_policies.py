"""The published admission policies, as manifests."""

import yaml

from tests.support.cluster.admission_policies import MANIFESTS


def test_a_rule_of_a_namespace_matches_nothing_beside_namespaces() -> None:
    """A namespaceSelector alone does not exclude cluster-scoped objects."""
    for file in sorted((MANIFESTS / "policies").glob("*.yaml")):
        for document in yaml.safe_load_all(file.read_text()):
            constraints = document["spec"].get("matchConstraints", {})
            if "namespaceSelector" in constraints:
                scopes = {rule.get("scope") for rule in constraints["resourceRules"]}
                assert scopes == {"Namespaced"}, file.name

"""What keeps Cloister from being uninstalled, and how that is said."""

from cloister_api.commands.checks import refusal


def test_nothing_keeps_an_empty_installation() -> None:
    assert not refusal([], [])


def test_containers_keep_it_and_some_are_named() -> None:
    names = [f"org-acme/web-{number}" for number in range(7)]
    said = refusal(names, ["org-acme/web-0-1-1"])
    assert "while there are Containers (org-acme/web-0, org-acme/web-1" in said
    assert "org-acme/web-4 and 2 more" in said
    assert "org-acme/web-5" not in said
    assert "kubectl delete ctr --all" in said
    assert "--no-hooks" in said
    assert "rollback" not in said
    kept = refusal(names, [], "helm rollback cloister 4 -n cloister-system")
    assert kept.endswith(
        "To keep Cloister, run `helm rollback cloister 4 -n cloister-system`; until then helm "
        "upgrade is refused"
    )


def test_enclaves_that_end_keep_it_as_well() -> None:
    said = refusal([], ["org-acme/web-1-1"])
    assert "while Enclaves end (org-acme/web-1-1)" in said
    assert "kubectl get encl -A" in said

"""The sizes that an organization's files may request."""

from cloister_crds.config.limits import CPU_TIERS, GPU_COUNTS, MEMORY_TIERS
from cloister_crds.kinds import Organization
from cloister_crds.lifecycle.state.observed import Tiers


def organization(**limits: list[int]) -> Organization:
    spec = {"namespace": "org-acme", "limits": limits}
    return Organization.read({"metadata": {"name": "acme"}, "spec": spec})


def test_without_limits_of_its_own_they_are_those_of_the_format() -> None:
    want = Tiers(CPU_TIERS, MEMORY_TIERS, GPU_COUNTS)
    assert Tiers.of(None) == Tiers.of(organization()) == Tiers() == want


def test_they_are_the_limits_in_order() -> None:
    tiers = Tiers.of(organization(cpus=[128, 2], memory=[8192, 4096], gpus=[4]))
    assert tiers == Tiers(cpus=(2, 128), memory=(4096, 8192), gpus=(4,))

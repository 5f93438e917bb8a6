"""Custom domains: records, DNS checks, verification and its loss."""

import hmac
from dataclasses import replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

import pytest

from cloister_crds.kinds import Domain, Organization
from cloister_crds.kinds.domain import DomainRecords, DomainStatus
from cloister_crds.kinds.organization import Entitlements
from cloister_crds.lifecycle.admission.validation import RequestFacts, spec_problems
from cloister_crds.lifecycle.names.domains import (
    DomainDecision,
    DomainSettings,
    decide_domain,
    may_serve,
    records_of,
    used_by,
)
from cloister_crds.lifecycle.state.conditions import condition, holds
from cloister_crds.lifecycle.state.observed import DnsFacts, Failed, Known, LookupResult, Need
from tests.support.builders.resources import (
    DOMAIN,
    NOW,
    container_of,
    domain_of,
    host_of,
    organization_of,
)

HOST = "api.customer.test"
HOUR = timedelta(hours=1)
SETTINGS = DomainSettings(
    key=b"k" * 32,
    target="dns.example.test",
    service="cloister",
    containers_domain=DOMAIN,
    interval=timedelta(minutes=5),
    grace=timedelta(days=7),
)
ORGANIZATION = organization_of(entitlements=Entitlements(domain_suffixes=("customer.test",)))
RECORDS = records_of(HOST, organization=ORGANIZATION, settings=SETTINGS)
RIGHT = DnsFacts((RECORDS.txt_value,), (RECORDS.cname_target,))


def organization(slug: str = "acme", uid: str = "org-1") -> Organization:
    """Return an organization that may have the domain."""
    metadata = ORGANIZATION.metadata.model_copy(update={"name": slug, "uid": uid})
    return ORGANIZATION.model_copy(update={"metadata": metadata})


class Zone:
    """A Domain, and the result of every DNS lookup."""

    def __init__(self, facts: DnsFacts | Failed) -> None:
        self.facts = facts
        self.now = NOW
        self.asked = 0
        self.domain = domain()

    def work(self, organization: Organization | None = ORGANIZATION) -> DomainDecision:
        """Reconcile until there are no more lookups."""
        results: dict[Need, LookupResult] = {}
        while True:
            found = decide_domain(self.domain, organization, (), results, SETTINGS, self.now)
            self.domain = self.domain.model_copy(update={"status": found.status})
            if found.need is None:
                return found
            self.asked += 1
            facts = self.facts
            if isinstance(facts, DnsFacts):
                facts = replace(facts, request=found.need.request)
            results[found.need] = facts if isinstance(facts, Failed) else Known(facts, self.now)

    @property
    def status(self) -> DomainStatus:
        """Its status."""
        return self.domain.status

    @property
    def reason(self) -> str:
        """Reason of its condition Ready."""
        ready = condition(self.status.conditions, "Ready")
        assert ready is not None
        return ready.reason


def domain(host: str = HOST, **annotations: str) -> Domain:
    named = {f"cloister.dev/{name.replace('_', '-')}": value for name, value in annotations.items()}
    return Domain.read(
        {
            "metadata": {"name": "api", "generation": 1, "annotations": named},
            "spec": {"domain": host},
        }
    )


def lost() -> Zone:
    """Make a Domain that was verified and has lost its TXT record a moment ago."""
    zone = Zone(RIGHT)
    zone.work()
    zone.now += HOUR
    zone.facts = DnsFacts((), RIGHT.aliases)
    zone.work()
    return zone


@pytest.mark.spec("8.12", "8.13")
def test_records_are_those_of_the_specification() -> None:
    assert RECORDS.txt_name == f"_cloister.{HOST}"
    assert HOST in RECORDS.txt_value
    assert " " not in RECORDS.txt_value
    label, _, rest = RECORDS.cname_target.partition(".")
    assert (len(label), int(label, 16) > 0, rest) == (32, True, "dns.example.test")


@pytest.mark.spec("8.12", "8.13", "24.4", "24.11")
def test_the_nonce_is_the_organizations_and_the_target_the_domains() -> None:
    other = records_of(HOST, organization=organization("other"), settings=SETTINGS)
    second = records_of("www.customer.test", organization=ORGANIZATION, settings=SETTINGS)
    nonce = RECORDS.txt_value.rpartition(":")[2]
    assert second.txt_value.endswith(nonce)
    assert not other.txt_value.endswith(nonce)
    assert len({RECORDS.cname_target, other.cname_target, second.cname_target}) == 3


def test_another_organization_of_the_slug_inherits_neither_verification_nor_proof() -> None:
    later = records_of(HOST, organization=organization(uid="org-2"), settings=SETTINGS)
    assert later.txt_value != RECORDS.txt_value
    assert later.challenge_label != RECORDS.challenge_label
    assert later.challenge_name == f"_acme-challenge.{HOST}"
    restored = organization(uid="org-3")
    status = restored.status.model_copy(update={"id": "org-1"})
    restored = restored.model_copy(update={"status": status})
    assert records_of(HOST, organization=restored, settings=SETTINGS) == RECORDS


def test_a_domain_that_an_earlier_release_verified_keeps_its_records() -> None:
    def mac(*parts: str) -> str:
        return hmac.new(SETTINGS.key, "\0".join(parts).encode(), "sha256").hexdigest()[:32]

    earlier = DomainRecords(
        txt_name=RECORDS.txt_name,
        txt_value=f"cloister-verification={HOST}:{mac('nonce', 'acme')}",
        cname_target=RECORDS.cname_target,
    )
    zone = Zone(DnsFacts((earlier.txt_value,), (earlier.cname_target,)))
    status = DomainStatus(records=earlier, verified=True, verified_at=NOW)
    zone.domain = zone.domain.model_copy(update={"status": status})
    for _ in range(2):
        zone.now += HOUR
        zone.work()
        assert zone.status.verified
        assert zone.status.records is not None
        assert zone.status.records.txt_value == earlier.txt_value
        assert zone.status.records.challenge_label == sha256(HOST.encode()).hexdigest()[:32]
    unverified = status.model_copy(update={"verified": False})
    zone.domain = zone.domain.model_copy(update={"status": unverified})
    zone.now += HOUR
    zone.work()
    assert (zone.status.verified, zone.status.records) == (False, RECORDS)


def test_a_name_below_the_domain_of_generated_names_is_refused_by_name() -> None:
    owner = organization()
    entitled = Entitlements(domain_suffixes=(DOMAIN, "customer.test"))
    spec = owner.spec.model_copy(update={"entitlements": entitled})
    owner = owner.model_copy(update={"spec": spec})
    for host in (f"web.other.{DOMAIN}", DOMAIN):
        zone = Zone(RIGHT)
        zone.domain = domain(host)
        zone.work(owner)
        assert (zone.asked, zone.reason, zone.status.verified) == (0, "DomainReserved", False)


@pytest.mark.spec("5.8", "8.15")
@pytest.mark.parametrize(
    ("facts", "verified", "configured"),
    [
        (RIGHT, True, True),
        (DnsFacts((), RIGHT.aliases), False, True),
        (DnsFacts(RIGHT.texts, ()), False, False),
        (DnsFacts(("other", *RIGHT.texts), (*RIGHT.aliases, "old.example.test")), True, True),
        (DnsFacts((f'"{RECORDS.txt_value}"',), RIGHT.aliases), False, True),
        (DnsFacts(), False, False),
    ],
)
def test_both_records_verify_in_one_look(
    facts: DnsFacts, *, verified: bool, configured: bool
) -> None:
    zone = Zone(facts)
    zone.work()
    status = zone.status
    assert (status.verified, status.cname_configured) == (verified, configured)
    assert status.verified_at == (NOW if verified else None)
    assert zone.reason == ("DomainVerified" if verified else "DomainNotVerified")
    assert (status.records, status.checked_at) == (RECORDS, NOW)
    assert not holds(status.conditions, "Stalled")


@pytest.mark.parametrize(
    ("facts", "end"),
    [
        (DnsFacts(), "the TXT record and the CNAME record were missing or wrong."),
        (
            DnsFacts(RIGHT.texts, ()),
            "the CNAME record was missing or wrong, and the TXT record was correct.",
        ),
        (
            DnsFacts((), RIGHT.aliases),
            "the TXT record was missing or wrong, and the CNAME record was correct.",
        ),
    ],
)
def test_everything_that_is_missing_is_named(facts: DnsFacts, end: str) -> None:
    zone = Zone(facts)
    for _ in range(2):  # after the check, and between two checks
        zone.work()
        ready = condition(zone.status.conditions, "Ready")
        assert ready is not None
        assert ready.message.endswith(end)
        zone.now += timedelta(seconds=1)


@pytest.mark.spec("24.10")
def test_two_looks_do_not_add_up() -> None:
    zone = Zone(DnsFacts(RIGHT.texts, ()))
    zone.work()
    zone.now += HOUR
    zone.facts = DnsFacts((), RIGHT.aliases)
    zone.work()
    assert not zone.status.verified


def test_dns_is_looked_at_on_a_schedule_and_on_request() -> None:
    zone = Zone(DnsFacts())
    decision = zone.work()
    assert (zone.asked, decision.requeue_after) == (1, SETTINGS.interval)
    zone.now += SETTINGS.interval - timedelta(seconds=1)
    assert zone.work().requeue_after == timedelta(seconds=1)
    assert zone.asked == 1
    zone.domain = domain(requested_at="now").model_copy(update={"status": zone.status})
    zone.work()
    assert (zone.asked, zone.status.last_handled_request) == (2, "now")
    zone.now += SETTINGS.interval
    zone.work()
    assert zone.asked == 3


@pytest.mark.spec("5.8")
def test_only_a_lost_text_undoes_a_verification() -> None:
    zone = Zone(RIGHT)
    zone.work()
    zone.now += HOUR
    zone.facts = DnsFacts(RIGHT.texts, ())
    zone.work()
    assert (zone.status.verified, zone.status.cname_configured) == (True, False)
    zone.facts = Failed("DnsUnavailable", "no answer", transient=True, at=NOW)
    zone.now += HOUR
    zone.work()
    assert zone.status.verified
    assert zone.reason == "DomainVerified"


@pytest.mark.spec("24.10")
def test_a_lost_text_blocks_at_once_and_drops_after_the_grace() -> None:
    zone = lost()
    status = zone.status
    assert (status.verified, status.verified_at, status.lost_at) == (False, None, zone.now)
    assert zone.reason == "DomainLost"
    assert holds(status.conditions, "Stalled")
    assert may_serve(zone.domain, now=zone.now, grace=SETTINGS.grace)
    assert status.lost_at is not None
    zone.now = status.lost_at + SETTINGS.grace
    zone.work()
    assert zone.reason == "DomainDropped"
    assert not may_serve(zone.domain, now=zone.now, grace=SETTINGS.grace)


def test_both_records_bring_it_back() -> None:
    zone = lost()
    zone.now += HOUR
    zone.facts = RIGHT
    zone.work()
    assert (zone.status.verified, zone.status.lost_at) == (True, None)


def test_the_end_of_the_grace_is_not_slept_through() -> None:
    zone = lost()
    assert zone.status.lost_at is not None
    zone.now = zone.status.lost_at + SETTINGS.grace - timedelta(seconds=10)
    assert zone.work().requeue_after == timedelta(seconds=10)


def test_a_failed_look_stays_told_until_the_next() -> None:
    zone = Zone(Failed("DnsUnavailable", "no server answered", transient=True, at=NOW))
    zone.work()
    assert zone.reason == "DnsUnavailable"
    before = zone.status
    zone.now += timedelta(seconds=1)
    zone.work()
    assert zone.status == before


@pytest.mark.parametrize(
    ("organization", "reason"),
    [
        (None, "OrganizationNotFound"),
        (organization_of(), "EntitlementRequired"),
        (
            organization_of(entitlements=Entitlements(domain_suffixes=("omer.test", HOST))),
            "EntitlementRequired",
        ),
    ],
)
def test_who_may_not_have_it_is_told(organization: Organization | None, reason: str) -> None:
    zone = Zone(RIGHT)
    zone.work(organization)
    assert (zone.asked, zone.reason, zone.status.verified) == (0, reason, False)


def test_an_entitlement_that_goes_leaves_the_time_of_grace() -> None:
    zone = Zone(RIGHT)
    zone.work()
    zone.now += HOUR
    zone.work(organization_of())
    assert (zone.status.verified, zone.status.lost_at) == (False, zone.now)


def test_the_end_of_that_time_is_seen_without_an_event() -> None:
    zone = Zone(RIGHT)
    zone.work()
    zone.now += HOUR
    assert zone.work(organization_of()).requeue_after == SETTINGS.grace
    served = zone.status.conditions
    assert "It is served until" in served[0].message
    zone.now += SETTINGS.grace
    assert zone.work(organization_of()).requeue_after is None
    assert zone.status.conditions != served, "a change of the Domain, which its Containers see"


def test_many_requests_are_one_check_in_ten_seconds() -> None:
    zone = Zone(RIGHT)
    zone.work()
    assert zone.asked == 1
    for number in range(40):
        zone.now += timedelta(seconds=1)
        annotated = domain(requested_at=f"{number}").metadata
        zone.domain = zone.domain.model_copy(update={"metadata": annotated})
        wait = zone.work().requeue_after
        assert wait is not None
        assert wait <= timedelta(seconds=10) or zone.status.last_handled_request == f"{number}"
    assert zone.asked == 5
    assert zone.status.last_handled_request == "39"


def test_a_request_during_a_check_is_for_the_next_one() -> None:
    first, later = domain(requested_at="1"), domain(requested_at="2")
    asked = decide_domain(first, ORGANIZATION, (), {}, SETTINGS, NOW).need
    assert asked is not None
    again = decide_domain(later, ORGANIZATION, (), {}, SETTINGS, NOW).need
    assert again == asked, "one lookup at a time, whatever is requested meanwhile"
    results: dict[Need, LookupResult] = {asked: Known(replace(RIGHT, request="1"), NOW)}
    found = decide_domain(later, ORGANIZATION, (), results, SETTINGS, NOW)
    assert (found.status.verified, found.status.last_handled_request) == (True, "1")


@pytest.mark.spec("24.7")
def test_it_is_used_by_those_that_ask_for_it_or_serve_it() -> None:
    asking = container_of("asks", custom_domain=HOST)
    serving = container_of("serves")
    serving = serving.model_copy(
        update={"status": serving.status.model_copy(update={"domain": HOST})}
    )
    users = used_by(HOST, [serving, asking, container_of("other")])
    assert [each.metadata.name for each in users] == ["asks", "serves"]


def test_what_never_was_verified_may_not_serve() -> None:
    fresh: Any = domain()
    when: datetime = NOW
    assert not may_serve(fresh, now=when, grace=SETTINGS.grace)
    assert not may_serve(None, now=when, grace=SETTINGS.grace)


@pytest.mark.parametrize(
    ("domains", "codes"),
    [
        ((), ["DomainNotFound"]),
        ((domain_of(HOST, verified=False),), ["DomainNotVerified"]),
        ((domain_of(HOST, verified=False), domain_of(HOST)), []),
    ],
)
def test_only_a_verified_domain_is_deployed_with(
    domains: tuple[Domain, ...], codes: list[str]
) -> None:
    question = RequestFacts(
        name="web",
        spec=container_of(custom_domain=HOST).spec,
        organization=ORGANIZATION,
        hosts=(host_of(),),
        domains=domains,
    )
    problems = spec_problems(question)
    assert [(each.field, each.code) for each in problems] == [
        ("spec.customDomain", code) for code in codes
    ]


def test_a_clock_that_is_set_back_makes_no_look_wait_for_it() -> None:
    zone = Zone(RIGHT)
    zone.work()
    zone.now -= HOUR
    assert zone.work().requeue_after == SETTINGS.interval
    assert zone.asked == 2
    zone.work()
    assert zone.asked == 2

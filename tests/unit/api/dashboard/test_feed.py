"""Which streams hear of a change."""

import asyncio
from collections.abc import Callable, Collection
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from cloister_api.dashboard.live import REMEMBERED, Feed, SessionWatch
from cloister_api.errors import ApiError

NOTHING: frozenset[str] = frozenset()


class Informer:
    """A reflector, as far as the feed uses it."""

    def __init__(self) -> None:
        self.listeners: list[Callable[[Any], None]] = []

    def listen(self, listener: Callable[[Any], None]) -> None:
        """Add a listener."""
        self.listeners.append(listener)

    def tell(self, value: Any) -> None:
        """Call the listeners."""
        for each in self.listeners:
            each(value)


class Thing:
    """An object with whatever a test needs."""

    def __init__(self, **fields: Any) -> None:
        vars(self).update(fields)


class Cache:
    """The informers."""

    def __init__(self) -> None:
        self.containers, self.enclaves, self.organizations = Informer(), Informer(), Informer()
        self.hosts, self.deployments, self.secrets = Informer(), Informer(), Informer()
        self.ssh_keys, self.domains, self.registry_credentials = Informer(), Informer(), Informer()


@pytest.fixture
def cache() -> Any:
    return Cache()


@pytest.fixture
def feed(cache: Any) -> Feed:
    return Feed(cache, per_session=2, per_user=3, per_process=4)


def thing(namespace: str, uid: str = "u1") -> Thing:
    return Thing(metadata=Thing(namespace=namespace, uid=uid))


def container(namespace: str, uid: str = "u1") -> Thing:
    return Thing(container=thing(namespace, uid))


def test_a_container_is_heard_by_the_list_and_its_own_page(cache: Any, feed: Feed) -> None:
    everything, own = frozenset({"containers"}), frozenset({"container:u1"})
    with (
        feed.follow("a", "s1", "ada", everything) as everyone,
        feed.follow("a", "s1", "ada", own) as one,
        feed.follow("b", "s2", "ada", everything) as other,
    ):
        cache.containers.tell(container("a", "u2"))
        assert (everyone.take(), one.take(), other.take()) == (everything, NOTHING, NOTHING)
        cache.containers.tell(container("a"))
        assert (everyone.take(), one.take(), other.take()) == (everything, own, NOTHING)
        cache.enclaves.tell(Thing(namespace="a", container_uid="u1"))
        assert (everyone.take(), one.take()) == (NOTHING, own)
        assert not one.woken.is_set()


@pytest.mark.parametrize("part", ["secrets", "ssh_keys", "domains"])
def test_what_belongs_to_an_organization_is_heard_there(cache: Any, feed: Feed, part: str) -> None:
    name = part.replace("_", "-")
    parts = frozenset({name})
    with (
        feed.follow("a", "s1", "ada", parts) as here,
        feed.follow("b", "s1", "ada", parts) as there,
    ):
        getattr(cache, part).tell(thing("a"))
        assert (here.take(), there.take()) == (parts, NOTHING)
        getattr(cache, part).tell(None)
        assert (here.take(), there.take()) == (parts, parts)


def test_members_are_always_heard(cache: Any, feed: Feed) -> None:
    with feed.follow("a", "s1", "ada", frozenset({"hosts"})) as stream:
        cache.organizations.tell(Thing(spec=Thing(namespace="a")))
        assert stream.take() == {"organization"}
        cache.hosts.tell(Thing())
        assert stream.take() == {"hosts"}
        cache.deployments.tell(Thing(value=thing("a")))
        assert not stream.woken.is_set()


def test_a_stream_hears_of_what_changed_since_its_page_was_made(cache: Any, feed: Feed) -> None:
    parts = frozenset({"containers", "secrets"})
    cache.containers.tell(container("a"))
    made = feed.moment
    with feed.follow("a", "s1", "ada", parts, made) as early:
        assert not early.woken.is_set(), "that was before"
        cache.containers.tell(container("b"))
        cache.domains.tell(thing("a"))
    with feed.follow("a", "s1", "ada", parts, made) as unmoved:
        assert not unmoved.woken.is_set(), "nothing of this page"
        cache.containers.tell(container("a"))
    with (
        feed.follow("a", "s1", "ada", parts, made) as late,
        feed.follow("a", "s1", "ada", parts) as other,
    ):
        assert late.woken.is_set()
        assert (late.take(), other.take()) == (frozenset({"containers"}), NOTHING)
    cache.containers.tell(None)
    with feed.follow("a", "s1", "ada", parts, made) as relisted:
        assert relisted.take() == parts | {"organization"}


@pytest.mark.parametrize("moment", ["x.0", "x", ".", "{begun}.9", "{begun}.-1", "{begun}.²"])
def test_of_another_process_everything_may_have_changed(feed: Feed, moment: str) -> None:
    parts = frozenset({"hosts"})
    given = moment.format(begun=feed.moment.partition(".")[0])
    with feed.follow("a", "s1", "ada", parts, given) as stream:
        assert stream.take() == {"hosts", "organization"}


def test_more_changes_than_are_remembered_are_every_change(cache: Any, feed: Feed) -> None:
    parts, made = frozenset({"hosts"}), feed.moment
    for _ in range(REMEMBERED):
        cache.secrets.tell(thing("b"))
    with feed.follow("a", "s1", "ada", parts, made) as stream:
        assert not stream.woken.is_set()
    cache.secrets.tell(thing("b"))
    with feed.follow("a", "s1", "ada", parts, made) as stream:
        assert stream.take() == {"hosts", "organization"}


def test_there_are_as_many_streams_as_may_be(feed: Feed) -> None:
    parts = frozenset({"containers"})
    with feed.follow("a", "s1", "ada", parts):
        with feed.follow("a", "s1", "ada", parts):
            with pytest.raises(ApiError, match="close some"), feed.follow("a", "s1", "ada", parts):
                pass
            with feed.follow("a", "s2", "ada", parts):
                with (
                    pytest.raises(ApiError, match="close some"),
                    feed.follow("a", "s3", "ada", parts),
                ):
                    pass
                # Many sessions of one user leave room for others.
                with (
                    feed.follow("a", "s4", "bob", parts),
                    pytest.raises(ApiError, match="close some"),
                    feed.follow("a", "s5", "eve", parts),
                ):
                    pass
        with feed.follow("a", "s1", "ada", parts):
            assert feed.streams == 2
    assert feed.streams == 0


def test_the_streams_of_a_session_that_is_over_end_and_others_do_not(feed: Feed) -> None:
    parts = frozenset({"containers"})
    with (
        feed.follow("a", "s1", "ada", parts) as one,
        feed.follow("b", "s1", "ada", parts) as two,
        feed.follow("a", "s2", "ada", parts) as other,
    ):
        assert feed.sessions == {"s1", "s2"}
        feed.end_sessions(["s1", "unknown"])
        assert [each.ended for each in (one, two, other)] == [True, True, False]
        assert [each.woken.is_set() for each in (one, two, other)] == [True, True, False]
    assert feed.sessions == frozenset()


async def test_the_watch_asks_for_sessions_with_streams_alone_and_outlives_the_ledger(
    feed: Feed,
) -> None:
    asked: list[frozenset[str]] = []

    async def over(sessions: Collection[str]) -> set[str]:
        asked.append(frozenset(sessions))
        if len(asked) == 1:
            raise OperationalError("select", {}, Exception("away"))
        return {"s1"}

    watch = SessionWatch(feed, over, every=0.001)
    watch.start()
    with feed.follow("a", "s1", "ada", frozenset({"containers"})) as stream:
        await asyncio.wait_for(stream.woken.wait(), 10)
        assert stream.ended
    watch.end()
    assert len(asked) >= 2
    assert set(asked) == {frozenset({"s1"})}


async def test_a_watch_that_fails_ends_the_feed_and_says_so(
    feed: Feed, caplog: pytest.LogCaptureFixture
) -> None:
    async def over(_: Collection[str]) -> set[str]:
        raise KeyError("a fault of ours")

    with feed.follow("a", "s1", "ada", frozenset({"containers"})) as stream:
        SessionWatch(feed, over, every=0.001).start()
        await asyncio.wait_for(stream.woken.wait(), 10)
        assert feed.ended
        await asyncio.sleep(0)
    assert "live pages have ended" in caplog.text


def test_the_end_of_the_process_wakes_every_stream(feed: Feed) -> None:
    with feed.follow("a", "s1", "ada", frozenset({"containers"})) as stream:
        feed.end()
        assert feed.ended
        assert stream.woken.is_set()

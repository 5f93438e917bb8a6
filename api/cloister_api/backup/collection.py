"""Collects a backup: the objects of the cluster and a copy of the ledger, each of one moment."""

import hashlib
import json
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    RowMapping,
    Table,
    delete,
    func,
    insert,
    select,
)
from sqlalchemy.exc import SQLAlchemyError

from cloister_api.backup.contents import (
    KEPT_KINDS,
    SYSTEM_SECRETS,
    Body,
    is_kept_secret,
    kept,
    kept_container,
    place_of,
    secrets_of,
)
from cloister_api.ledger.database import (
    LedgerError,
    Place,
    display_name,
    disposed,
    migrate,
    open_to_read,
    open_writer,
)
from cloister_api.ledger.keys.key_material import KeyMaterial
from cloister_api.ledger.keys.table import SEALED, seal_context
from cloister_api.ledger.tables import (
    ADMIN_KEYS,
    API_KEYS,
    METADATA,
    REPLICAS,
    RUNTIME_ENCLAVES,
    SESSION_LINKS,
    SESSIONS,
)
from cloister_api.ledger.usage_tables import EVENTS, LEASES, PRICE_VERSIONS, REPORTERS
from cloister_clients.kube import Gone, KindRef, KubeClient, NotFound
from cloister_clients.kube.kinds import NAMESPACE, SECRET, of
from cloister_crds.kinds import Container, Enclave, Organization
from cloister_crds.kinds.request import RequestRecord

T = TypeVar("T")

BATCH: Final = 2_000
"""Rows that are in memory at a time."""
IN_USE: Final = (ADMIN_KEYS, API_KEYS, REPORTERS, PRICE_VERSIONS, EVENTS, RUNTIME_ENCLAVES)
"""Tables of which one has rows in every ledger that somebody used."""
NAMED_BY: Final[tuple[ColumnElement[Any], ...]] = (
    ADMIN_KEYS.c.key_index,
    API_KEYS.c.key_index,
    REPORTERS.c.id,
)
"""Columns by which a ledger that was restored before, and used since, is recognized."""

Sums = dict[str, str]
"""Rows and digest of each table, which depends neither on the database nor on the order of rows."""


def tables() -> list[Table]:
    """Return the tables of a copy: all but those that say which facades run and who is signed in.

    A session that was ended since must not come back.
    """
    passing = {LEASES, REPLICAS, SESSIONS, SESSION_LINKS}
    return [each for each in METADATA.sorted_tables if each not in passing]


def back_up(place: Place, file: Path) -> Sums:
    """Copy a ledger into a new SQLite file, while facades run.

    Raises
    ------
    LedgerError
        When the ledger cannot be read, or the file not written.
    """
    migrate(place)
    migrate(file)
    sums = copied(place, file, copy_rows)
    with closing(sqlite3.connect(file)) as connection:
        # Without this, a second file would belong to it.
        connection.execute("PRAGMA journal_mode=DELETE")
    return sums


def restore(file: Path, place: Place, material: KeyMaterial) -> Sums | None:
    """Copy a backup into an empty ledger, in one transaction that proves the copy before it ends.

    Parameters
    ----------
    file
        The backup; one of an older release is migrated.
    place
        The ledger, which is created if it does not exist.
    material
        The keys, which must be those of the backup.

    Returns
    -------
    dict or None
        The sums of both; None if the ledger has every key of the backup already and stays as it is.

    Raises
    ------
    LedgerError
        When the ledger holds something else, one of the two cannot be used, or the copy differs.
    MaterialError
        When a key of the backup does not open with the key material.
    """
    try:
        with file.open("rb") as opened:
            header = opened.read(15)
    except OSError as error:
        raise LedgerError(f"{file}: {error.strerror}") from error
    if header != b"SQLite format 3":
        raise LedgerError(
            f"{file} is not a backup of a ledger; `cloister ledger backup` writes one"
        )
    migrate(file)
    check_material(file, material)
    migrate(place)

    def copy(source: Connection, target: Connection) -> Sums | None:
        if any(has_rows(target, table) for table in IN_USE):
            # An interrupted restore is repeated: a complete copy is a success.
            if has_all(source, target):
                return None
            raise LedgerError(
                f"{display_name(place)} is in use: it has keys, prices or usage of its own; "
                "restore into an empty one"
            )
        sums = copy_rows(source, target)
        differing = [name for name, sum_ in sums_of(target).items() if sums[name] != sum_]
        if differing:
            raise LedgerError(f"{display_name(place)}: tables {', '.join(differing)} differ")
        return sums

    return copied(file, place, copy)


def copied(place: Place, into: Place, copy: Callable[[Connection, Connection], T]) -> T:
    """Run a copy in a snapshot of one ledger and a transaction of the other."""
    try:
        with (
            disposed(open_to_read(place)) as reading,
            disposed(open_writer(into)) as writing,
            snapshot_of(reading).connect() as source,
            writing.begin() as target,
        ):
            return copy(source, target)
    except (OSError, sqlite3.Error) as error:
        raise LedgerError(str(error)) from error
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        raise LedgerError(f"{display_name(place)}, {display_name(into)}: {reason}") from error


def snapshot_of(engine: Engine) -> Engine:
    """Return an engine whose transactions see one moment."""
    if engine.dialect.name == "sqlite":
        return engine
    return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


def copy_rows(source: Connection, target: Connection) -> Sums:
    """Put the rows of one ledger in the place of those of another."""
    sums = {}
    for table in tables():
        target.execute(delete(table))
        sum_ = TableSum()
        for rows in batches(source, table):
            sum_.add(rows)
            target.execute(insert(table), [dict(row) for row in rows])
        sums[table.name] = sum_.text()
        if target.dialect.name == "postgresql":
            continue_numbers(target, table)
    return sums


def continue_numbers(connection: Connection, table: Table) -> None:
    """Let PostgreSQL number further rows after those that were copied."""
    column = table.autoincrement_column
    if column is None:
        return
    sequence = func.pg_get_serial_sequence(table.name, column.name)
    last = select(func.max(column)).scalar_subquery()
    if connection.execute(select(sequence, last)).one()[1] is not None:
        connection.execute(select(func.setval(sequence, last)))


def sums_of(connection: Connection) -> Sums:
    """Compute the sums of a ledger."""
    sums = {}
    for table in tables():
        sum_ = TableSum()
        for rows in batches(connection, table):
            sum_.add(rows)
        sums[table.name] = sum_.text()
    return sums


def batches(connection: Connection, table: Table) -> Iterable[list[RowMapping]]:
    """Yield the rows of a table, a few at a time."""
    options = {"stream_results": True, "yield_per": BATCH}
    result = connection.execute(select(table), execution_options=options)
    for part in result.mappings().partitions():
        yield list(part)


class TableSum:
    """Number of rows, and the sum of their digests."""

    def __init__(self) -> None:
        self._rows = 0
        self._sum = 0

    def add(self, rows: list[RowMapping]) -> None:
        """Count rows."""
        self._rows += len(rows)
        for row in rows:
            text = repr([plain(value) for value in row.values()])
            digest = hashlib.sha256(text.encode()).digest()
            self._sum = (self._sum + int.from_bytes(digest)) % 2**256

    def text(self) -> str:
        """Write both, such as ``3 5f2c…``."""
        return f"{self._rows} {self._sum:064x}"


def plain(value: Any) -> Any:
    """Return a value as every database has it."""
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value


def has_rows(connection: Connection, table: Table) -> bool:
    """Return whether a table has rows."""
    return connection.execute(select(*table.primary_key).limit(1)).first() is not None


def has_all(source: Connection, target: Connection) -> bool:
    """Return whether a ledger has the keys and reporters of another one, which has some."""
    known, wanted = (
        {(str(column), name) for column in NAMED_BY for name in each.scalars(select(column))}
        for each in (target, source)
    )
    return bool(wanted) and wanted <= known


def check_material(place: Place, material: KeyMaterial) -> None:
    """Prove that every sealed value of a ledger opens.

    Raises
    ------
    MaterialError
        When one does not.
    """
    with disposed(open_to_read(place)) as engine, engine.connect() as connection:
        for table in SEALED:
            for rows in batches(connection, table):
                for row in rows:
                    if row["sealed"]:
                        material.unseal(row["sealed"], context=seal_context(table, row))


APPS: Final = KindRef("apps", "v1", "deployments", "Deployment")
PART: Final = "app.kubernetes.io/part-of=cloister"
ATTEMPTS: Final = 3
"""How often the cluster is read, where it forgets the moment that is read."""


@dataclass
class Lines:
    """Objects, one line of JSON each, in a file that only this process sees."""

    file: IO[bytes] = field(default_factory=tempfile.TemporaryFile)
    """The file."""
    count: int = 0
    """How many objects there are."""

    def add(self, body: Body) -> None:
        """Write an object."""
        self.file.write(json.dumps(body, separators=(",", ":")).encode() + b"\n")
        self.count += 1

    def sort(self) -> None:
        """Sort by time of creation, in which order Containers count against the limit."""
        places = []
        self.file.seek(0)
        begin = 0
        for line in self.file:
            metadata = json.loads(line)["metadata"]
            places.append((metadata["creationTimestamp"], metadata["uid"], begin, len(line)))
            begin += len(line)
        ordered = tempfile.TemporaryFile()  # noqa: SIM115 - it takes the place of the other
        for _, _, begin, length in sorted(places):
            self.file.seek(begin)
            ordered.write(self.file.read(length))
        self.file.close()
        self.file = ordered


async def collect(
    client: KubeClient, system: str, secrets: tuple[str, ...]
) -> tuple[dict[str, Lines], list[str]]:
    """Read the cluster.

    Parameters
    ----------
    client
        Somebody who may read all Secrets.
    secrets
        Secrets of it that are in the backup in addition to those that the programs' Deployments
        name.

    Returns
    -------
    tuple
        The files of the archive by name, and sentences about what was left out.

    Raises
    ------
    KubeError
        When the cluster refuses or does not respond.
    """
    for attempt in range(ATTEMPTS):
        reading = _Collection(client, system)
        try:
            return await reading.read(secrets)
        except BaseException as error:
            reading.close()
            if not isinstance(error, Gone) or attempt == ATTEMPTS - 1:
                raise
    raise AssertionError


class _Collection:
    """One reading of the cluster, at one moment."""

    def __init__(self, client: KubeClient, system: str) -> None:
        self._client = client
        self._system = system
        self._at = ""
        self._files = {name: Lines() for name in (*KEPT_KINDS, SYSTEM_SECRETS)}
        self._namespaces: set[str] = set()
        self._left_out: list[str] = []

    async def read(self, secrets: tuple[str, ...]) -> tuple[dict[str, Lines], list[str]]:
        """Read everything."""
        first = await self._client.list(of(Organization))
        self._at = first.resource_version
        for body in first.items:
            if self._is_going(body):
                continue
            self._namespaces.add(body["spec"]["namespace"])
            self._files["organizations"].add(kept(body))
        del first
        for name, ref in KEPT_KINDS.items():
            if name == "organizations":
                continue
            async for body in self._objects(name, ref):
                self._files[name].add(await self._kept(body))
        self._files["containers"].sort()
        await self._system_secrets(secrets)
        return self._files, self._left_out

    def close(self) -> None:
        """Close the files."""
        for lines in self._files.values():
            lines.file.close()

    async def _objects(self, name: str, ref: KindRef) -> AsyncIterator[Body]:
        """Yield the objects of a file."""
        if name == "core-secrets":
            # Not of the whole cluster: other namespaces' are none of ours, and large.
            for namespace in sorted(self._namespaces):
                async for body in self._pages(ref, namespace):
                    if is_kept_secret(body):
                        yield body
            return
        label = "cloister.dev/organization" if ref is NAMESPACE else None
        async for body in self._pages(ref, None, label):
            metadata = body["metadata"]
            where = metadata["name"] if ref is NAMESPACE else metadata.get("namespace")
            if where is None or where in self._namespaces:
                yield body
            else:
                self._leave(body, f"its namespace {where} belongs to no Organization")

    async def _pages(
        self, ref: KindRef, namespace: str | None, label: str | None = None
    ) -> AsyncIterator[Body]:
        """Yield the objects of a kind that are not being deleted."""
        pages = self._client.list_pages(ref, namespace, label_selector=label, at=self._at)
        async for page in pages:
            for body in page.items:
                if not self._is_going(body):
                    yield body

    async def _kept(self, body: Body) -> Body:
        """Reduce an object to what is in the backup."""
        if body["kind"] != Container.INFO.kind:
            return kept(body)
        return kept_container(body, await self._serving(body))

    async def _serving(self, body: Body) -> RequestRecord | None:
        """Return the request that serves, where an update may end; None if it is not needed."""
        status = body.get("status") or {}
        if not status.get("update") or not status.get("activeEnclave"):
            return None
        try:
            found = await self._client.get(
                of(Enclave), status["activeEnclave"], body["metadata"]["namespace"]
            )
        except NotFound:
            return None
        return Enclave.read(found).spec.request

    async def _system_secrets(self, named: tuple[str, ...]) -> None:
        """Read the Secrets that the programs read."""
        names = set(named)
        page = await self._client.list(APPS, self._system, label_selector=PART)
        for deployment in page.items:
            names |= set(secrets_of(deployment["spec"]["template"]["spec"]))
        for name in sorted(names):
            try:
                body = await self._client.get(SECRET, name, self._system)
            except NotFound:
                self._left_out.append(f"Secret {self._system}/{name}: it does not exist")
                continue
            self._files[SYSTEM_SECRETS].add(kept(body))
        if not any("installation-key" in each for each in self._keys()):
            self._left_out.append(
                "the installation key and the key material: no Deployment names a Secret with "
                "them; name it with --secret, or keep the files apart"
            )

    def _keys(self) -> list[set[str]]:
        """Return the keys of the Secrets of the system."""
        file = self._files[SYSTEM_SECRETS].file
        file.seek(0)
        return [set(json.loads(line).get("data") or {}) for line in file]

    def _is_going(self, body: Body) -> bool:
        """Leave out what is being deleted."""
        going = "deletionTimestamp" in body["metadata"]
        if going and body["kind"] != SECRET.kind:
            self._leave(body, "it is being deleted")
        return going

    def _leave(self, body: Body, why: str) -> None:
        """Report what is not in the backup."""
        self._left_out.append(f"{body['kind']} {place_of(body)}: {why}")

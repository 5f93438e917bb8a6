"""The model catalog: read from a file, reloaded when the file changes, served as bytes.

The file may be a mounted ConfigMap; the kubelet then replaces it when the ConfigMap changes. A
change that cannot be read is logged, and the catalog stays as it is.
"""

import asyncio
import logging
from pathlib import Path

import msgspec
from pydantic import TypeAdapter, ValidationError

from cloister_api.schemas.accounts import ListedModel, ModelListResponse
from cloister_api.schemas.catalog import ModelRecord
from cloister_api.wire import encode, parse

logger = logging.getLogger(__name__)

FOLLOW_SECONDS = 1.0
"""Seconds between two checks of the file."""
MAX_VALUES = 1_000_000
"""Most values of the file, which an administrator writes."""
RECORDS = TypeAdapter(list[ModelRecord])


class CatalogError(Exception):
    """The file cannot be used; the message names each field and what is wrong with it."""


def read_catalog(path: Path) -> tuple[ModelRecord, ...]:
    """Read a catalog: a JSON array of records.

    Raises
    ------
    CatalogError
        When it cannot be read, breaks a rule, or names a field or a model twice.
    """
    try:
        document, repeated = parse(path.read_bytes(), most=MAX_VALUES)
    except OSError as error:
        raise CatalogError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CatalogError(f"{path}: not JSON: {error}") from error
    if repeated:
        raise CatalogError(f"{path}: {', '.join(repeated)} appears twice; keep one of them")
    try:
        records = RECORDS.validate_python(document)
    except ValidationError as error:
        raise CatalogError(f"{path}: {described(error)}") from error
    names = [record.model_name for record in records]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise CatalogError(f"{path}: {', '.join(twice)} appears twice; keep one record of each")
    return tuple(records)


def described(error: ValidationError) -> str:
    """Describe in one line what is wrong with which field."""
    parts = []
    for problem in error.errors(include_url=False, include_input=False):
        field = ".".join(str(part) for part in problem["loc"]) or "the document"
        problem_text = {
            "extra_forbidden": "is not a field of a record; check the spelling",
            "missing": "is missing",
        }.get(problem["type"], problem["msg"])
        parts.append(f"{field}: {problem_text}")
    return "; ".join(parts)


class Catalog:
    """The catalog in memory."""

    def __init__(self, path: Path | None, service: str) -> None:
        """Read the catalog for the first time.

        Parameters
        ----------
        path
            Its file; None means an empty catalog.
        service
            Name of the installation, which owns the models in the list of models.

        Raises
        ------
        CatalogError
            When the file cannot be used.
        """
        self._path = path
        self._service = service
        self._stamp = stamp_of(path)
        self._encoded: dict[tuple[bool | None, bool | None], bytes] = {}
        self._models = b""
        self.listed: tuple[ModelRecord, ...] = ()
        """The records, in the order of the file."""
        self._take(read_catalog(path) if path else ())

    def _take(self, records: tuple[ModelRecord, ...]) -> None:
        self.listed = records
        dumped = [
            (one, one.model_dump(mode="json", by_alias=True, exclude_none=True)) for one in records
        ]
        self._encoded = {
            (paid, chat): msgspec.json.encode(
                [
                    wire
                    for one, wire in dumped
                    if paid in {None, one.paid} and chat in {None, one.chats}
                ]
            )
            for paid in (None, True, False)
            for chat in (None, True, False)
        }
        models = [listed_model(record, self._service) for record in records]
        self._models = encode(ModelListResponse(object="list", data=models))

    def records(self, *, paid: bool | None, chat: bool | None) -> bytes:
        """Return the records as a JSON array.

        Parameters
        ----------
        paid
            Only those that cost, or that do not; None means all.
        chat
            Only those for chats, or others; None means all.
        """
        return self._encoded[paid, chat]

    @property
    def models(self) -> bytes:
        """The list of models in the form of GET /v1/models."""
        return self._models

    def reload(self) -> None:
        """Read the file if it changed.

        Raises
        ------
        CatalogError
            When it cannot be used; the catalog stays as it was.
        """
        stamp = stamp_of(self._path)
        if self._path is None or stamp == self._stamp:
            return
        self._stamp = stamp
        self._take(read_catalog(self._path))
        logger.info("the model catalog was reloaded")

    async def run(self) -> None:
        """Follow the file until cancelled."""
        while True:
            await asyncio.sleep(FOLLOW_SECONDS)
            try:
                self.reload()
            except CatalogError:  # what was read before is served until the file can be read
                logger.exception("the model catalog cannot be reloaded; it stays as it is")


def stamp_of(path: Path | None) -> tuple[int, int, int] | None:
    """Return values that change when a file is replaced; None if there is no file."""
    if path is None:
        return None
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_ino, found.st_size)


def listed_model(record: ModelRecord, service: str) -> ListedModel:
    """Return the entry of a model in GET /v1/models."""
    return ListedModel(
        id=record.model_name,
        object="model",
        created=record.created_at,
        owned_by=service,
        type=record.type,
        multimodal=record.multimodal,
        tool_calling=record.tool_calling,
        pricing=record.pricing,
        endpoints=record.endpoints,
        usage_metric=record.usage_metric,
        context_window_tokens=record.context_window_tokens,
        experimental=record.experimental,
        deprecated=record.deprecated,
        deprecation_date=record.deprecation_date,
    )

"""Responses with a JSON body: what a route returns, typed by its body."""

from collections.abc import Mapping
from typing import Any, Generic, Self, TypeVar

import msgspec
from fastapi import Response
from pydantic import BaseModel

__all__ = ["JsonResponse", "encode"]

T = TypeVar("T")


def dump(value: Any) -> Any:
    """Return a response body as what msgspec encodes.

    Raises
    ------
    TypeError
        When it is not one.
    """
    if isinstance(value, BaseModel):
        return value.model_dump(by_alias=True)
    raise TypeError(f"{type(value).__name__} is not a response body; return a model of schemas")


ENCODER = msgspec.json.Encoder(enc_hook=dump)


def encode(value: Any) -> bytes:
    """Encode a response body, or a list of them, as JSON."""
    return ENCODER.encode(value)


class JsonResponse(Response, Generic[T]):
    """A response whose body is of type `T`.

    A route that is annotated with it has `T` as its response model (`TypedRoute`), so that the
    type checker holds the OpenAPI document to what the route returns.
    """

    media_type = "application/json"

    def __init__(
        self, body: T, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(encode(body), status, headers=headers)

    @classmethod
    def encoded(cls, content: bytes, headers: Mapping[str, str] | None = None) -> Self:
        """Build a response of a body that is encoded already."""
        response = cls.__new__(cls)
        Response.__init__(response, content, headers=headers, media_type=cls.media_type)
        return response

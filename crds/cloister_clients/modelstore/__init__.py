"""A store of model weights: images ROOTHASH.mpk, as an administrator makes and lists it."""

from cloister_clients.modelstore.image import (
    ModelImage,
    StoreError,
    derived_salt,
    derived_uuid,
    read_entry,
    read_store,
)
from cloister_clients.modelstore.pack import pack

__all__ = [
    "ModelImage",
    "StoreError",
    "derived_salt",
    "derived_uuid",
    "pack",
    "read_entry",
    "read_store",
]

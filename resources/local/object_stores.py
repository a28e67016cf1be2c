"""The object stores that can run here."""

from __future__ import annotations

from resources.local.fake_gcs import FakeGcs
from resources.local.object_store import ObjectStore
from resources.local.seaweed import Seaweed
from resources.local.service import Lake

STORES: tuple[ObjectStore, ...] = (Seaweed(), FakeGcs())


def store_of(lake: Lake) -> ObjectStore | None:
    """The store of this lake; None: its files are in a folder."""
    return next((store for store in STORES if store.name == lake), None)

"""The order of the Containers of each namespace, kept as the informer cache changes."""

from cloister_crds.lifecycle.admission.limits import PlaceOrder
from cloister_operator.cache.projections import CONTAINER
from cloister_operator.cache.store import Store, StoreChange

__all__ = ["ContainerOrder"]


class ContainerOrder:
    """Places of the Containers of a store that are not being deleted, by namespace."""

    def __init__(self, store: Store) -> None:
        self._orders: dict[str, PlaceOrder] = {}
        store.subscribe(self._changed)

    def of(self, namespace: str) -> PlaceOrder:
        """Return the places of a namespace."""
        return self._orders.get(namespace) or PlaceOrder()

    def _changed(self, change: StoreChange) -> None:
        """Note a Container that came, went, or is being deleted."""
        if change.ref != CONTAINER:
            return
        before = change.before.place if change.before is not None else None
        after = change.after.place if change.after is not None else None
        if before == after:
            return
        order = self._orders.setdefault(change.namespace, PlaceOrder())
        if before is not None:
            order.remove(before)
        if after is not None:
            order.add(after)
        if not order:
            del self._orders[change.namespace]

"""Custom resources that our objects belong to, asked for one by one where no list has them.

A list may be empty because it is not this cluster's. Believed, it would take away all that belongs to the
resource, and the labels of its nodes. Of one object the server itself says that it is not there.
"""

from __future__ import annotations

import logging

from driverforge_core.errors import DriverforgeError
from driverforge_operator.app.follow import line
from driverforge_operator.app.store import Store
from driverforge_operator.plan.removals import owner_references
from driverforge_operator.ports import Cluster, Gone, Kind
from driverforge_operator.state.kinds import CLUSTER_POLICY, NVIDIA_DRIVER, CustomResource

LOGGER = logging.getLogger("driverforge")
_KINDS: dict[str, Kind[CustomResource]] = {one.name: one for one in (CLUSTER_POLICY, NVIDIA_DRIVER)}


class Owners:
    """One thread uses it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._gone: set[str] = set()  # uids

    def known(self, store: Store) -> bool:
        """Whether all are there or surely gone, before something is decided about objects.

        One that is there is put into the store.
        """
        if not store.decides_objects:
            return True
        for uid, (kind, name) in _unseen(store).items():
            if uid in self._gone:
                continue
            try:
                found = self._cluster.get(kind, name)
            except Gone:
                self._gone.add(uid)
            except DriverforgeError as error:
                LOGGER.warning("%s: %s", kind.ref(name), line(error))
                return False
            else:
                # it may be another one of that name
                self._gone |= {uid} - {found.metadata.uid}
                store.put(kind, found)
        return True


def _unseen(store: Store) -> dict[str, tuple[Kind[CustomResource], str]]:
    """Kind and name by uid of those that the store's objects name, and that nobody has told."""
    state = store.state
    known = {one.metadata.uid for one in state.resources.values()}
    named = (one for document in state.objects.values() for one in owner_references(document))
    return {
        one["uid"]: (_KINDS[one["kind"]], one["name"])
        for one in named
        if one["uid"] not in known and one["kind"] in _KINDS
    }

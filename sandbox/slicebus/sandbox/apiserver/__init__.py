"""An in-process Kubernetes API server, for the demo and for fast tests.

It keeps objects in memory and serves them over HTTP as the real one does: list, watch with history, bookmarks and 410,
create, update, three patch formats, the status subresource, resourceVersion conflicts, selectors,
finalizers, owner deletion, custom resources with their schema, discovery. Contract tests compare it with the real one.
Work that the real server leaves to controllers, such as deleting owned objects, is done here before a request is
answered. It evaluates no CEL rules, no admission webhooks and no RBAC. It keeps no `managedFields`, and answers
server-side apply with 415. It keeps no schemas of built-in kinds, so their unknown fields stay and few of their values
are checked. A pod goes at once, without a grace period. It speaks JSON only: a kubectl command that insists on protobuf
gets 415. The package `controllers` plays the controllers of a cluster against any API server.
"""

from slicebus.sandbox.apiserver.server import EmbeddedApiServer

__all__ = ["EmbeddedApiServer"]

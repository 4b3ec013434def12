"""Speaks to Kubernetes' API servers: a raw client, cached watches, Events and Leases.

Objects are plain dictionaries, as the API server sent them. No module in here knows slices, quota or messages.
kubernetes-asyncio reads the configuration and authenticates. Not used are its models (63 times the cost of plain JSON
on a list of 500 pods), its watch (no relist after 410, no backoff) and its dynamic client (a 404 is not raised).
"""

"""Speaks to Kubernetes' API servers: a raw client, cached watches, Events and Leases.

Objects are plain dictionaries, as the API server sent them. No module in here knows slices, quota or messages.
kubernetes-asyncio is not used: its models cost 63 times as much as plain JSON on a list of 500 pods, its watch neither
lists again after a 410 nor backs off, and its dynamic client raises nothing for a 404 (docs/decisions/0053).
"""

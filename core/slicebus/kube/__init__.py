"""Kubernetes over kubernetes-asyncio's configuration, authentication and REST client.

Objects are plain dictionaries, as the API server sent them. No module in here knows slices, quota or messages. Not used
of kubernetes-asyncio: its models (63 times the cost of plain JSON on a list of 500 pods), its watch (no relist after
410, no backoff) and its dynamic client (a 404 is not raised).
"""

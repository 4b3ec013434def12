"""A worker cluster: who it is, what its WorkerCluster shows, what it is told, and which jobs leave it."""

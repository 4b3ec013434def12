"""One job of the worker: `reconcile` asks for its size, starts its pods and reports. Its other decisions lie beside
that."""

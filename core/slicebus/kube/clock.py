"""Where `slicebus.ambient.clock` was until now; branches that are under way still import it from here."""

from slicebus.ambient.clock import ambient, now, random_bytes, random_hex, randomness

__all__ = ["ambient", "now", "random_bytes", "random_hex", "randomness"]

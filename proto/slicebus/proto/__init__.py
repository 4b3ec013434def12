"""The wire contract between manager and agents: message types, envelope, codec, routing keys and topology.

Nothing here does I/O, knows a clock, or imports another slicebus package. A change to a type here is a change to what
an older agent or manager has to understand; `proto/README.md` has the rules.
"""

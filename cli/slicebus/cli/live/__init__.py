"""The live view of a fleet, which the demo and `slicebus top` draw: what is seen, and the panels of it."""

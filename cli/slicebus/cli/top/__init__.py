"""`slicebus top`: a fleet, live."""

"""The definitions of the broker: made, printed in its formats, compared with what it has, and written by its API."""

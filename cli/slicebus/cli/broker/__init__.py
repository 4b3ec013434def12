"""The broker's definitions: these modules make them, print them in its formats, compare them with what it has, and
write them by its API."""

"""Takes out of texts what a terminal or a browser acts on instead of showing it.

Whoever sent a message, an object or a file has written its texts. Control characters move the cursor, set the title or
answer in the user's name. Bidirectional controls and characters without width show another text than is there.
"""

import re

MARK = "\N{REPLACEMENT CHARACTER}"


def printable(text: str) -> str:
    """The text on one line, with a mark in place of each character that cannot be shown."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else MARK for character in text)


def printable_lines(text: str) -> str:
    """The same for a text of several lines: its line feeds stay."""
    return "\n".join(map(printable, text.split("\n")))


def printable_json(encoded: bytes) -> bytes:
    """JSON that says the same, with each such character escaped. Nothing is lost: a reader gets it back."""
    if _PLAIN.fullmatch(encoded):
        return encoded
    text = encoded.decode()
    if text.isprintable():
        return encoded
    return "".join(character if character.isprintable() else _escaped(character) for character in text).encode()


_PLAIN = re.compile(rb"[ -~]*")


def _escaped(character: str) -> str:
    """The character as JSON writes it in ASCII: as one or two UTF-16 units."""
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))

"""Writes every page of docs/reference: `make reference`."""

from support.reference.pages import pages

if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")

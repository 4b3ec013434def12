"""Completes `kubectl slicebus`: kubectl runs `kubectl_complete-slicebus` with the words, the last one unfinished."""

import os
import shlex
import sys

from slicebus.cli import screen

_DIRECTIVE = ":0"
"""What kubectl reads last: where nothing was printed, the shell completes the names of files."""


def main() -> None:
    """The entry point. It prints each word that would fit, with its help after a tab, as `slicebus` does for fish."""
    from slicebus.cli import main as commands

    *before, unfinished = sys.argv[1:] or [""]
    words = shlex.join(["slicebus", *before])
    os.environ |= {
        commands.COMPLETES: "complete_fish",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_TYPER_COMPLETE_ARGS": f"{words} {shlex.quote(unfinished) if unfinished else ''}",
    }
    try:
        commands.main()
    finally:
        screen.say(_DIRECTIVE)

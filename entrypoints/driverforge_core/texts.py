"""Text of others, for people."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text on one line, with everything that a terminal or a log would act on as an escape (`\\n`).

    A process, a pod or a mirror may give a name of any characters: a line break would forge a line of ours.
    """
    return "".join(character if character.isprintable() else _escaped(character) for character in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")

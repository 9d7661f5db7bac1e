"""Text from elsewhere, as it may stand on a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""The text with all that a terminal would act on made visible: '\x1b[31m', '\u202e'.

    Servers, file names and compilers choose their words themselves: an escape sequence among them could
    retitle a window, hide a line, or type one. What str.isprintable refuses is written as in a Python text;
    line ends and tabs stay. So a lone surrogate, which stands for a byte of a file name that is no UTF-8,
    does not end the output either.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in "\n\t" else _escaped(char) for char in text)


def on_one_line(text: str) -> str:
    """The text on one line, with everything that a terminal or a log would act on as an escape (`\\n`).

    A process, a pod or a mirror may give a name of any characters: a line break would forge a line of ours.
    """
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")

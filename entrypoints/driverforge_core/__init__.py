"""Pure values that all programs share: kernel releases, driver versions, OS ids, image tags, errors.

Nothing in this package touches the system: text in, values out. It imports the standard library only, and
runs on Python 3.10.
"""

__version__ = "0.1.0"

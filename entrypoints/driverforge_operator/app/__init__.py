"""The life of a command, once."""

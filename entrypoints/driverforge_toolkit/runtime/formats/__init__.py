"""Documents as values, and edits of their text that leave every other byte as it is.

`values` knows keys and differences, `tomledit` TOML, `jsonedit` JSON; a `configfile` is handed on with what
it says. Knows nothing of runtimes and imports
no other room.
"""

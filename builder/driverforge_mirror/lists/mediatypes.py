"""Words of artifacts that are made here: what lists, archives and registries know them by."""

TITLE = "org.opencontainers.image.title"
PACKAGES = "application/vnd.driverforge.packages.v1"
PACKAGES_CONFIG = "application/vnd.driverforge.packages.config.v1+json"
DATA = "data:;base64,"
"""How the address of a file begins that the list itself holds."""
FOLDER_URL = "{url}"
"""Stands in a definition of repositories for the address of the folder in which an OS's packages lie."""

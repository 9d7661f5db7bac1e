"""Container runtime configuration as a transaction."""

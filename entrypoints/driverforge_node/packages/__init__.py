"""Package managers, one module each."""

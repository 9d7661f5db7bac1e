"""What differs between operating system families, one module each."""

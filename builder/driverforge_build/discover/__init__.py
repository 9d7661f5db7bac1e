"""Which kernels and packages signed repositories offer, proven from the signature to a package's digest."""

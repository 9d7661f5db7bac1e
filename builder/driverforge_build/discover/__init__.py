"""Discovery: which kernels and packages signed repositories offer, proven from signature to package digest."""

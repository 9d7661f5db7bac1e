"""What a mirror and a folder of archives need no more."""

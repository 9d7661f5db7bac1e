"""Lists of what a mirror has to hold: how they are read, and where their images go."""

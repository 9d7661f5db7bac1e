"""What is to be done about a cell, decided before anything is downloaded or compiled, with the evidence.

Pure: matrix and lock in, verdict out; only `exists` needs a registry's answer, which is handed in.

    build    nothing stands against it
    exists   the registry has the image, made from the same inputs
    blocked  the matrix excludes it, or no module type is left that the kernel's headers, or the
             distribution's packages, give
    unknown  something has to be run first, `run` says what

A module type that breaks alone is left out: the image has the others, and a warning says so. End of life is a
warning too, never a verdict.
"""

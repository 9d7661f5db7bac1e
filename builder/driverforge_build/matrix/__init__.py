"""The catalogue: which drivers on which operating systems and kernels, as data.

`load_matrix` reads matrix.yaml, or a site's file that extends it, into a `Matrix`. A cell is one image to be:
(OS, architecture, driver, kernel release or `jit`). `jit_cells` and `kernel_cells` expand a matrix into
cells.
"""

from driverforge_build.matrix.branches import Probe
from driverforge_build.matrix.expand import Cell, flavour_of, jit_cells, kernel_cells
from driverforge_build.matrix.load import Matrix, load_matrix
from driverforge_build.matrix.model import DriverRow, KernelSeries, OsRow, Toolkit
from driverforge_build.matrix.repository import Repository

__all__ = [
    "Cell",
    "DriverRow",
    "KernelSeries",
    "Matrix",
    "OsRow",
    "Probe",
    "Repository",
    "Toolkit",
    "flavour_of",
    "jit_cells",
    "kernel_cells",
    "load_matrix",
]

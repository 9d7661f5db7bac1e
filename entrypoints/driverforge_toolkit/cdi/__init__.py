"""CDI: what a container needs of the NVIDIA driver, as files that container runtimes read.

* `libraries`, `driverfiles`, `device_edits`, `gpu_devices`: what a driver root has, as edits of a container;
* `hooks`: the programs that the runtime starts for a container;
* `modes`, `generate`: which of it goes into a spec, and the way from a request to a file;
* `spec`, `specfiles`, `conformance`: specs as values, as files, and what makes one valid;
* `transform`: from spec to spec;
* `verify`, `stale`, `remedy`: a spec compared with the node, and the command that writes it again.

Source: the CDI specification (tags.cncf.io/container-device-interface). What GPUs and device files there are
is known to `gpu`.
"""

"""What every room of the node knows of GPUs: the ground under driver, devices, CDI, watch and doctor.

* `device_files`: the names and numbers of the driver's device files, and /proc/devices;
* `inventory`: GPUs and MIG devices as /proc and /dev show them;
* `detect`: NVIDIA's PCI functions, and the type of the loaded module;
* `smi`: the GPUs that nvidia-smi of a driver on the node names;
* `pci`: functions on the bus, as sysfs shows them;
* `roots`: where the driver's files are, on the host and as this process sees them;
* `environment`: variables of NVIDIA's pods that more than one command reads.

A fact belongs here when it is NVIDIA's or the kernel's and two rooms use it. How a format (CDI), a tool or a
plan uses the fact belongs into that room. Everything here only reads.
"""

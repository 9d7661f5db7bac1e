"""Real parts: kernels under QEMU, engines, containerd, registries, nodes in a container."""

"""The test bench: product code with its own tests, used by the tests and by `hack/quickstart`.

Kernel guests under QEMU, a PCI function that exists in software only, mock modules, Debian packages of any suite, Docker
engines, registries and containerd daemons of their own. Everything big is made once and kept in one cache folder
(`support.cache`); everything works with that folder empty.
"""

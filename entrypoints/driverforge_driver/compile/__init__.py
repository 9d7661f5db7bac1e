"""Compile the driver's kernel modules for a kernel release: at image build and on the node, the same steps.

`job` is the whole of it, `headers` what comes before the compiler, `compiler` the compiler and its log,
`publish` the way from .ko files to a module set in its place, `cache` the node's cache. It needs a compiler
and a package manager in the image, and a folder with room for 1.5 GiB; no GPU and no running kernel of that
release.

Signing is no part of it: what is compiled here has no signature.
"""

"""What turns a generated folder into an image and boots a kernel: the only part of the builder that talks to
an engine, and starts programs.

`buildx` builds through the docker command, for BuildKit has no other stable interface. `store` inspects,
tags, reads and pushes through the docker SDK. `buildah` is podman and buildah, `nop` goes through the
motions. `guests` boots kernels under QEMU, with what `accelerator` says that works here. `process` is where
child processes start. What the rest of the builder knows of them is `ports.Engine` and `ports.Guests`.
"""

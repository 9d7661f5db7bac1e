"""What turns a generated folder into an image: the only part of the builder that talks to an engine.

`buildx` builds through the docker command, for BuildKit has no other stable interface. `images` inspects,
tags and pushes through the docker SDK. `buildah` is podman and buildah, `nop` goes through the motions.
`process` is where child processes start. What the rest of the builder knows of an engine is `ports.Engine`.
"""

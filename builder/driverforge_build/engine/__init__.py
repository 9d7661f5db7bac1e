"""What turns a generated folder into an image: the only part of the builder that talks to a container engine.

`ports` is what the commands know. `buildx` builds through the docker command (BuildKit has no other stable interface); `images` inspects,
tags and pushes through the docker SDK. `process` is where child processes start.
"""

"""`driverforge`: from matrix.yaml to Dockerfiles, images and a registry.

The stages, each a frozen value that the next one reads:

    matrix     what we support
    lock       what exists, pinned
    plan       cells with a verdict
    render     Dockerfile, context, bake file
    engine     images
    publish    images in a registry

The floors. An import goes down only:

    commands   parse and print
    app        the life of a command
    publish
    plan
    verdict
    render, discover
    lock
    matrix
    ports

engine and fetch are the adapters: they know ports, and only commands knows them.
"""

"""From a cell and its pins to a folder that any BuildKit can build: Dockerfile, context, docker-bake.json.

    spec        what goes in, every download pinned
    templates   Dockerfile, launchers
    library     our packages
    context     a folder
    bake        one file for all folders

Each reads those above it. Everything up to the writing of the folder is a function of its arguments.
"""

"""NVIDIA's container toolkit on the node: its programs, their wrappers, and config.toml.

`options` is the table of all options and variables, `settings` their values, `runtime_request` what they ask
of the runtime, and `release_plan` what they ask to be installed. `artifacts`, `wrapper` and `config_toml` say
what a release is made of; `install` makes it and switches to it; `releases` knows the ones that are there.
`toolkit_status` tells.

Imports the runtime's values and formats. The life of a pod is in app (toolkit_run, toolkit_watch,
toolkit_install).
"""

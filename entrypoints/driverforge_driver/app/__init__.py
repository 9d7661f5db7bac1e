"""The life of each command, written once: what is read, done and undone, and in which order.

Values in, values out: a module here takes the host and what was asked, returns what became of it, and prints
nothing. `commands` turns words into these values, and the values into text. The rooms below know how one part
of the driver works; only here do they meet.

`driver_life` is init, load and unload; `module_build` is build; `driver_removal` is manager;
`peermem_sidecar` is peermem.
"""

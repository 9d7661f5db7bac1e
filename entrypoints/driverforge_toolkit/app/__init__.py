"""The life of each command, written once: what is read, done and undone, and in which order.

Values in, values out: a module here takes the host and what was asked, returns what became of it, and prints
nothing. `commands` turns words into these values, and the values into text. The rooms below know how one part
of a node works; only here do they meet.

`configure_runtime` is runtime; `cdi_specs` is cdi; `device_nodes` is devices; `node_doctor` is doctor;
`validation` is validate. Of toolkit, `toolkit_install` is install and gc, `toolkit_run` is run, and
`toolkit_watch` is watch; `management_spec` is what these two write for management containers.
"""

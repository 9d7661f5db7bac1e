"""The configuration files of each kind of runtime.

What to write, what to take out again, and what the daemon makes of it. `containerd` (with
`containerd_drop_in` and `containerd_config`), `crio`, `docker` and `template` satisfy `model.Backend` and are
pure; `distributions` says which of them edits a daemon's files. `config_files` reads the files of a daemon,
`imports` says which these are for containerd, `effective` asks the daemon's own program what it makes of a
set of files (`candidates`), `rehearsal` whether that starts, and `start_rules` what the files alone say of
that. `oci_hook` is CRI-O's way of long ago.

Imports find, formats and the shared values, never the transaction.
"""

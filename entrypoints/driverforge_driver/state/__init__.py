"""What is so on a node, what is wanted of it, and where the files lie: the ground of the driver half.

* `wanted_driver`: what is wanted, from the command and the environment (`variables` is its table);
* `facts`: what is so, as frozen values, which `observe` fills by looking;
* `module_sets`: what can be loaded; `loadtree`: what modprobe loads from;
* `network`: what nvidia-peermem needs;
* `records`: what a later run cannot see by looking; `paths`: where everything is.

Nothing here decides or changes the driver: that is `plan` and `steps`.
"""

"""Known problems of a node's container runtime, CDI specs and toolkit, each with its evidence and its cure.

* `evidence`: what there is to judge by, as frozen values;
* `gather`, `gather_runtime`: fill it, from a running node or from a dump of its files;
* `runtime_files`: what a runtime makes of its files, without asking its program;
* `rules_node`, `rules_runtime`: pure functions from evidence to a diagnosis;
* `rules`: the table of them, the worst first.

A problem belongs here when people have had it. What a running watch does about some of them is in `watch`.
"""

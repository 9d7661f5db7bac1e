"""OS families: what differs between Debian's, Red Hat's and SUSE's kernels and packages, one module each.

`debian`, `rhel` and `suse` satisfy `model.Family`. A distribution belongs to the family that its row in
matrix.yaml names; `lookup` finds it.

What belongs here: which packages hold a kernel's headers and which repositories have them, the shape of an
unpacked header tree, the compiler that the tree asks for, where a site puts its CA certificates. Nothing else
in the node knows these. What does not belong here:

* how a package manager is called and what its answers mean: `packages`, one module each;
* what all families have alike: mokutil for Secure Boot keys, depmod's `updates` folder, which comes first
  everywhere;
* the grammar of kernel releases, which the builder reads as well: `driverforge_core.kernel`.
"""

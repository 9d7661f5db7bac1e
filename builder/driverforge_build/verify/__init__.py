"""Boot proof: the modules of an image, inserted into the very kernel that they were made for.

The kernel runs under QEMU, without a GPU, a disk or a network. `modules` reads the sets of an image, `tree`
the kernel's packages, `guest` makes what runs in there and reads what it says, `judge` knows what a pass is,
`findings` and `junit` tell it.
"""

"""Device files of the driver that no udev rule makes, and the links to them in /dev/char.

`repair` plans what is missing or wrong, and makes it. Which files there are, with which numbers, is known to
`gpu.device_files`. A room for what is done with device files; containers get them by CDI (`cdi`).
"""

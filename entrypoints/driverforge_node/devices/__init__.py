"""Device files of the driver that no udev rule makes: control nodes, capability nodes, and the links in /dev/char."""

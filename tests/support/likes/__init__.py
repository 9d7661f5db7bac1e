"""Ubuntu, Rocky Linux and SUSE Linux Enterprise as far as they can be had on Debian."""

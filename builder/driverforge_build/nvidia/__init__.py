"""What NVIDIA publishes: its drivers' archives with their checksums, and the list of its releases."""

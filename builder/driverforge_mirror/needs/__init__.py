"""What images a cluster needs, and why: its nodes, its drivers, and the places that name an image."""

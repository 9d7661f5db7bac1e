"""What a mirror holds of a list."""

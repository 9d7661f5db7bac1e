"""What is attached to images in a registry: how it is written, where it goes, and how it is read again."""

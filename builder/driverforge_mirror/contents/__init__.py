"""What is in a list of each image: what registries say, and what is made of files that no registry has."""

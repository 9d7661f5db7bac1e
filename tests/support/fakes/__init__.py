"""Stand-ins for what cannot exist here or is too dear for a unit test. Each says that it is a fake."""

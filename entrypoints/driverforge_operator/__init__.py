"""`driverforge-operator`: custom resources and nodes in, DaemonSets, node labels and conditions out."""

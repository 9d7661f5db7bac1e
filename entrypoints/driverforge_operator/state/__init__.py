"""What was observed: nodes, custom resources and our own objects, with the fields that are used."""

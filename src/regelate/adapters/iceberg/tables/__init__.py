"""Schemas, specs and properties as the doors write them; the REST catalog with an end to waiting."""

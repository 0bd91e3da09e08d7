"""Tools for AI assistants by the Model Context Protocol: each is an operation of the API, with a few of its fields."""

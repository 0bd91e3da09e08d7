"""What speaks to libraries and services, a room for each.

The face of a room is `__all__` of its package: the modules that others may import. They are named and not imported, so
that a process pays only for what it uses.
"""

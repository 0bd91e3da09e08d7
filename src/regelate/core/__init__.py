"""Deciding, without doing: pure functions over immutable values, a room for each noun, in the order of the flow.

table     what a table is at one snapshot, and what its parts are called
policy    the knobs, and which of them wins
planning  which files want rewriting and why, the groups, the sizes to expect, health
running   who does it, how a group is cut, whether rows are conserved, what still stands, what was done
upkeep    which snapshots and files may go
jobs      the durable decision to compact a table
query     a query as a value
measures  what is counted and measured of it all
answers   what the doors tell
"""

"""Deciding, without doing: pure functions over immutable values, in the order of the flow.

table        what a table is at one snapshot          schema      columns, as every door and engine sees them
names        which names may stand for a table        policy      the knobs, and which of them wins
options      request, table and config -> a policy    deletes     which deletes apply to which data file
selection    which data files want rewriting, and why prediction  how large outputs will be
packing      order-keeping groups that come out right plan        groups, skips and the one reason
health       how healthy a table is                   placement   where a plan runs, and what it costs
slices       one group as one slice per output        rewrite     what came back; rows are conserved
bounds       column bounds, decoded to compare        conflict    what happened meanwhile, what still stands
stats        what the world is told                   retention   which snapshots may go
trigger      when a write looks for small files       predicate   a query's filter
measures     what is counted and measured of it all
time_ranges  when a partition's time is over
input_metrics  what the manifests say of a group's columns, to verify its rewrite
census       live files counted, candidates kept      plan_report a plan as JSON-ready fields
"""

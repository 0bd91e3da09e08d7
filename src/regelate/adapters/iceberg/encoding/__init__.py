"""JSON records and Arrow tables as exactly the rows of a table, or a refusal."""

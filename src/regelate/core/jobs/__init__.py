"""The durable decision to compact a table, by whom, and which tables come first."""

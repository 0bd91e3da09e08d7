"""How a table fares under two hundred small merges: without compaction, and with each way to have it compacted."""

"""What a table is: snapshots, files, deletes, columns, bounds, names, partitions as text, its head."""

"""Jobs, their parts and leases, and those that Spark does."""

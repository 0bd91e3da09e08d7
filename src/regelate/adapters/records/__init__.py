"""What is remembered between two requests: jobs, leases and their queue, and a fleet; in SQLite, or in AWS."""

__all__ = ["dynamo_fleet", "dynamo_jobs", "sqlite_fleet", "sqlite_jobs", "sqs"]

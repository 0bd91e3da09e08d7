"""Jobs, leases and their queue: in a file of SQLite, or in DynamoDB and SQS."""

__all__ = ["dynamodb", "sqlite", "sqs"]

"""What a fleet is remembered in: a file of SQLite, or DynamoDB."""

__all__ = ["dynamodb", "sqlite"]

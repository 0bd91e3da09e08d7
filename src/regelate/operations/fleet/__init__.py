"""What a fleet does: tables observed, runs proposed, submitted and settled."""

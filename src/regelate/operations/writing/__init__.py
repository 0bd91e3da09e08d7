"""What a WRITE makes of its rows on one head, before it is committed."""

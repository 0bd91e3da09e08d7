"""What operations need of the outside, as Protocols, named for their nouns. The values in them are in core."""

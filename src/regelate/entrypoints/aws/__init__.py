"""Envelopes, HTTP routes and bodies, batches of a queue."""

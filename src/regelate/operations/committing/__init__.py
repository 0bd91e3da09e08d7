"""The one attempt loop, and what a later head says of what was sent."""

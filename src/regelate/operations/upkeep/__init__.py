"""Expiry and its second phase, MAINTAIN and its steps, SWEEP."""

"""`regelate demo`, `demo-spark`, and the self-test of an image."""

"""Every metric once, and what a job on Spark changed."""

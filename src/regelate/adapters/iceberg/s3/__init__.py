"""S3 for PyIceberg, spoken through boto3: every request has a time, a number of tries, and a length to be held to."""

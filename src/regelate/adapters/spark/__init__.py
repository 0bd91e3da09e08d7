"""Where the pipeline's jobs run in Spark: by spark-submit on this machine, or on EMR Serverless."""

__all__ = ["emr_serverless", "local"]

"""The data pipeline on Spark, which is zipped to clusters: standard library, pyspark, core and errors, nothing else."""

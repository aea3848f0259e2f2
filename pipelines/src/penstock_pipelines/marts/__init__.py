"""What the marts compute: Spark and pictures, free of Dagster."""

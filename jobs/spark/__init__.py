"""How the engine uses Spark: sessions and their views, and tasks that return reports."""

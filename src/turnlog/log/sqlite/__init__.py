"""The SQLite store: schema and queries, verification, watermark file and backup."""

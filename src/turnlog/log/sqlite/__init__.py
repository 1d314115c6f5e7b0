"""The SQLite store: schema and queries, checksums, verification, watermark file and backup."""

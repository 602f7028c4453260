"""Stores: objects in S3, Google Cloud Storage, Azure and behind https, read and written through a client process."""

"""Stores: objects in S3, Google Cloud Storage, Azure and on web servers, read and written through a client process."""

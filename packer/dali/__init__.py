"""DALI: what NVIDIA DALI's `fn.external_source` reads from a pack; NVIDIA DALI itself is not needed to import this."""

from packer.dali.external_source import BatchInfo, ExternalSource, LastBatch, SampleInfo, source

__all__ = ["BatchInfo", "ExternalSource", "LastBatch", "SampleInfo", "source"]

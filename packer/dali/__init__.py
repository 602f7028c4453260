"""DALI: sources of a pack for `fn.external_source` of NVIDIA DALI, which is not needed to import this module."""

from packer.dali.external_source import BatchInfo, ExternalSource, LastBatch, SampleInfo, source

__all__ = ["BatchInfo", "ExternalSource", "LastBatch", "SampleInfo", "source"]

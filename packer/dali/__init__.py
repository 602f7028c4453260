"""DALI: sources that read packs for `fn.external_source` of NVIDIA DALI. Importing this module does not need DALI."""

from packer.dali.external_source import BatchInfo, ExternalSource, LastBatch, SampleInfo, source

__all__ = ["BatchInfo", "ExternalSource", "LastBatch", "SampleInfo", "source"]

"""Sources of records in large files: TFRecord, RecordIO, WebDataset, and the LMDBs of other tools."""

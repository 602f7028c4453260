"""What the sources share that read Pascal VOC's layout: which files belong together, lists of samples, annotations."""

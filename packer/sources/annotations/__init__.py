"""Annotations: data sets of pictures with boxes, classes and masks in label files."""

"""Annotations: data sets of images with boxes, classes and masks in label files."""

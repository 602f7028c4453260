"""Backends: the libraries that decode pictures: libjpeg-turbo through PyTurboJPEG or simplejpeg, OpenCV, Pillow."""

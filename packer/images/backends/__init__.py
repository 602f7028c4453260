"""Backends: the libraries that decode images: libjpeg-turbo through PyTurboJPEG or simplejpeg, OpenCV, Pillow.

Which library of a machine decodes JPEG is settled in strict_jpeg.py, what goes to which backend in images/decode.py.
"""

"""Backends: the libraries that decode images: libjpeg-turbo through PyTurboJPEG or simplejpeg, OpenCV, Pillow.

strict_jpeg.py chooses between PyTurboJPEG and simplejpeg. images/decode.py chooses the backend of an image.
"""

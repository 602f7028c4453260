"""Rendering: things on a table, ray by ray in closed form, so that picture, depth and mask agree to the pixel.

Lengths are in metres. The world has the table at z = 0 and z up. Colours are linear RGB from 0 to 1 until a picture
is made of them; pictures are uint8 RGB with a gamma of 2.
"""

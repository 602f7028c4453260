"""Contact sheets: the pictures of some samples with their labels drawn in, as one PNG or one HTML page.

    choice -> picture, overlay -> tile -> png or html

Colours and letters are the same in both; nothing but OpenCV and NumPy is needed.
"""

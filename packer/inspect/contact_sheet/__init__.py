"""Contact sheets: the pictures of some samples with their labels drawn in, as one PNG or one HTML page.

    sheet -> picture, shape_overlay -> tile -> png_sheet or html_sheet

Colours and letters are the same in both; nothing but OpenCV and NumPy is needed.
"""

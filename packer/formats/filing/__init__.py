"""What a format needs that keeps values in files of their own, as BMP does. No format itself."""

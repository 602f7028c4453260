"""Headers: what the first bytes of a picture file say, one file format each; `detection` tells which it is."""

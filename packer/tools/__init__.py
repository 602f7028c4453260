"""Tools bench, tune, advise, profile, monitor and doctor: speed and limits of data loading on this machine."""

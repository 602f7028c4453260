"""The contestants, one file each: the folder is the list. A file imports its library inside functions only.

TASKS       task -> its variants; ("",) where there is one way. What is not named is listed as absent, with WITHOUT
WITHOUT     task -> why this peer does not do it
DOES        what it runs, in a phrase, and what differs from the task as it is defined
PACKAGES    distributions whose versions stand beside the figures
SYSTEM      Debian packages with C libraries that it needs, unpacked privately where they are missing; mostly ()
prepare(job)            once: from job.images into the empty folder job.work, in the peer's own format
epochs(job)             opens what was prepared; returns a function, each call of which is one shuffled epoch: an
                        iterator of uint8 batches, RGB, (n, height, width, 3) or (n, 3, height, width). A batch may be
                        memory that the next one reuses.
stored(job)             where variants read different files: the folder of those that this one reads

NAME.txt pins what goes into the peer's own virtual environment; a peer without one runs in packer's.

Tasks, always over every image once, in an order of its own in each epoch, batches of job.batch_size:
    full    the 500x375 photos decoded whole
    rrc     the same photos: torchvision's RandomResizedCrop(224, scale 0.08-1, ratio 3/4-4/3), bilinear without
            antialiasing, and a horizontal flip with probability 1/2
    raw224  images of 224x224 stored raw: nothing but moving bytes
    big     rrc on photos of 3000x2000
"""

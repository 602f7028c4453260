"""Extensions of any source: sidecar files, lists and shares that split, and the derived source that has them."""

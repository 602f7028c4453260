"""Extensions of any source: fields from sidecar files, splits and mask colors."""

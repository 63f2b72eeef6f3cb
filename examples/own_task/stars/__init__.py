"""The stars of a review; `stars.ordinal:Stars` is the task."""

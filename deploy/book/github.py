"""Anchors as GitHub makes them."""


def slug(heading, separator):
    kept = (c for c in heading.strip().lower() if c.isalnum() or c in " -_")
    return "".join(kept).replace(" ", separator)

"""What a closed cluster needs of the outside, and why: chart, values and nodes in, images by digest out."""

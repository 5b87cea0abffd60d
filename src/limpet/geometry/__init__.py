"""Where points are: algebra on normals, the way back to the surface, and the search for it."""

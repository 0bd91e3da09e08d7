"""The HTTP server of `regelate serve`: what a connection may cost, and the way from a request to its answer."""

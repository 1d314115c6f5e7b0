"""Server-Sent Events: query parameters, open streams, shared projections, responses of one turn."""

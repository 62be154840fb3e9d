"""The server process: socket, routes, and the life of its children."""

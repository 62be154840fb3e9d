"""The commands: `optaned` works without a daemon, a file a verb; `optanectl` only talks to the socket."""

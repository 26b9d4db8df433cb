"""The `loomjobs` command."""

"""A project whose jobs misbehave on purpose, deployed to the embedded AWS in place of the reference application."""

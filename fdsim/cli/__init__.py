"""The command line: one module a verb; whatever is heavy is imported inside the verb that needs it."""

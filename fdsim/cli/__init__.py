"""The command line: one module a verb; heavy imports are inside the verb that needs them."""

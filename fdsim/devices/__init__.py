"""The fleet: laws, devices and server on a SimPy clock; never imports torch."""

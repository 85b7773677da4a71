"""The fleet: device models, devices and a server on a SimPy clock; never imports torch."""

"""fdsim: federated learning on devices that drop out."""

__version__ = "0.1.0"

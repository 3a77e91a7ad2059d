"""Experiments: a frozen ``Config``, ``run(config) -> xarray.Dataset``, and what is drawn and told about the result.

Nothing is imported here, so that ``kernelgas --help`` answers at once.
"""

"""CPU, memory and delay that the proxy adds, compared with other servers:

`make bench` -> results.md.
"""

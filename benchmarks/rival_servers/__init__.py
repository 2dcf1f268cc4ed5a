"""The servers that ours is compared with, and what it takes to run them.

`classifier`, `litserve_app`, `mosec_app` and `export_onnx` run in the environments that
`make rivals-install` builds, which have none of this project's packages: they import nothing of it
beyond each other.
"""

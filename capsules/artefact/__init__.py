"""The capsule file: one safetensors file with its manifest in the header."""

"""The packed pass as an ONNX graph: made, kept, checked and run."""

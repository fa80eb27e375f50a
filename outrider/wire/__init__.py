"""What crosses a process boundary: frozen values, one module per contract, and their protobuf forms.

Message modules (`outrider.v1.*_pb2`) are imported here and nowhere else.
"""

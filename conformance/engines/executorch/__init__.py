"""The ExecuTorch runtime with its XNNPACK delegate."""

"""Traces of OpenTelemetry, off by default: `spans` is what code calls, and costs nothing when off.

`process` switches tracing on for a program; only then is OpenTelemetry imported
(`open_telemetry`).
"""

"""From scores back to data space: linear, ridge, fixed point, distance constraint."""

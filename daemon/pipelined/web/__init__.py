# SPDX-License-Identifier: Apache-2.0
"""What the port serves: metrics, JSON API, live events and pages, as one Flask application."""

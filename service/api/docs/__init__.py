"""The page that shows the API."""

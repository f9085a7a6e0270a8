"""Trained models over HTTP: OpenAI's API for language models, and a route for each other task.

service = Service.load(["en-es", "shakespeare"])
app = create_app(service, Access())
"""

"""The public test kit: tiny models that really load, and fakes with behaviour. Import the module you need."""

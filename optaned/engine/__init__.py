"""The engine and tokenizer processes, and the parent's side of them."""

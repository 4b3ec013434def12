"""Dead letters: `headers` writes what each says of its death, `letters` selects and requeues them, `browse` reads them
and leaves them there."""

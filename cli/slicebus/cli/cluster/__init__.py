"""How commands read a cluster: the options that they share, the objects that a user may see, and the tables of them."""

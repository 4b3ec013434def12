"""Speaks to RabbitMQ: `bus` is the implementation of the contract, on the parts beside it.

`connector` opens connections, `link` keeps one up, `failures` translates the errors of the libraries. Nothing outside
imports aio-pika or aiormq.
"""

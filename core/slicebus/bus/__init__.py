"""The bus: RabbitMQ, and an in-process one, behind the same contract.

The bus carries bytes and their AMQP properties, and knows no message types. `slicebus.bus.contract` is the interface;
`connect` in `slicebus.bus.factory` picks the implementation by the URL.
"""

"""Carries messages over RabbitMQ, or in one process behind the same contract.

The bus knows bytes and their AMQP properties, and no message types. `slicebus.bus.contract` is the interface. `connect`
in `slicebus.bus.factory` picks the implementation by the URL; `lanes` handles the deliveries of a queue. The rooms are
`access`, `dead_letters` and `rabbitmq`, which imports from the other two.
"""

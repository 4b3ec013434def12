"""The bus: RabbitMQ, and one in this process, behind the same contract.

Carries bytes and their AMQP properties; what a message means is decided elsewhere. `slicebus.bus.contract` is the
interface, `connect` in `slicebus.bus.factory` picks the implementation by the URL.
"""

"""Commands of ``penstock`` that start, stop and look at the services (``penstock.commands``)."""

# command → (module, one line of help)
COMMANDS = {
    "up": (
        "penstock_services.cli.up",
        "Start the services of this directory and wait until they answer.",
    ),
    "down": (
        "penstock_services.cli.down",
        "Stop the services; with --purge remove their data too.",
    ),
    "status": (
        "penstock_services.cli.status",
        "Show every endpoint, process, health, memory and CPU.",
    ),
    "doctor": (
        "penstock_services.cli.doctor",
        "Check Java, memory, ports, versions, jars and the object store.",
    ),
    "logs": ("penstock_services.cli.logs", "Show or follow the log of a service."),
}

"""The resource ``penstock``, and ``ResourceComponent``, which declares it in a project.

::

    type: penstock_platform.ResourceComponent
    attributes:
      home: /var/lib/penstock                    # default: PENSTOCK_HOME, else .penstock
      env:                                       # which variable of this deployment holds what
        PENSTOCK_KAFKA_BOOTSTRAP_SERVERS: KAFKA_BROKERS
        PENSTOCK_S3_SECRET_KEY: LAKE_SECRET_KEY

At most one document a code location; without it the PlatformComponent declares the resource with
its defaults. YAML never contains values, only the names of the variables that hold them, so the UI
shows no secret. The component's settings are those of the definitions too, which read no more of
them than the cluster's name, the webserver's address and the starts recorded in the home.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import BaseModel, ConfigDict, Field, field_validator

from penstock_platform.connections import Connections, connections_of
from penstock_platform.problems import meant
from penstock_platform.settings import HOME_VARIABLE, PREFIX, Settings, SettingsError
from penstock_platform.topics import declarations
from penstock_platform.topics.scaffolding import ResourceScaffolder

RESOURCE_KEY = "penstock"


class ResourceSpec(BaseModel):
    """Where the settings come from."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    home: str = Field(
        default="", description="The state directory; empty: `PENSTOCK_HOME`, else `.penstock`."
    )
    env: dict[str, str] = Field(
        default={},
        description="By variable of Penstock (SETTINGS.md) the variable of your deployment that "
        "holds its value.",
    )

    @field_validator("env")
    @classmethod
    def _known(cls, env: dict[str, str]) -> dict[str, str]:
        known = Settings.variables() - {HOME_VARIABLE}
        for name in env:
            table = "__" in name and name.startswith(PREFIX)
            if name not in known and not table:
                raise ValueError(f"{name} sets nothing{meant(name, known, shown_max=0)}")
        return env

    def settings(self, *, complete: bool = True) -> Settings:
        """The settings now. ``complete`` raises SettingsError where a variable of ``env`` is not
        set; definitions load without them."""
        found = dict(os.environ)
        missing = []
        for name, source in self.env.items():
            if source in os.environ:
                found[name] = os.environ[source]
            else:
                missing.append(f"{source} is not set; the resource penstock reads {name} from it")
        if complete and missing:
            raise SettingsError("\n".join(missing))
        return Settings.load(Path(self.home) if self.home else None, found)


class PenstockResource(dg.ConfigurableResource, dg.IAttachDifferentObjectToOpContext):  # type: ignore[type-arg]
    """Connections to broker, object store, lake and Spark, opened when they are first used.

    ``context.resources.penstock`` is a ``Connections``; a parameter ``penstock: PenstockResource``
    has it as ``connections``. One object a process and set of settings: a sensor looks every few
    seconds, and opening a client of S3 costs more than asking it.
    """

    home: str = Field(default="", description="State directory; empty: PENSTOCK_HOME")
    env: dict[str, str] = Field(
        default_factory=dict,
        description="By variable of Penstock the variable of this deployment that holds its value",
    )

    @property
    def connections(self) -> Connections:
        return connections_of(ResourceSpec(home=self.home, env=self.env).settings())

    def get_object_to_set_on_execution_context(self) -> Connections:
        return self.connections


_ATTRIBUTES = declarations.attributes_model("ResourceAttributes", ResourceSpec)


@dg.scaffold_with(ResourceScaffolder)
class ResourceComponent(declarations.DeclaredComponent):
    """The resource ``penstock``: connections to broker, object store, lake and Spark."""

    ATTRIBUTES = _ATTRIBUTES
    TAGS = ("kafka", "spark", "s3")
    PRODUCES = ("resource",)

    def __init__(self, spec: ResourceSpec | None = None) -> None:
        self.spec = spec or ResourceSpec()

    @classmethod
    def read(cls, values: Mapping[str, Any], source: declarations.Source) -> ResourceSpec:
        """Raises DeclarationError with file and line of every problem."""
        return declarations.parse(ResourceSpec, values, source)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        declared(context)
        return build_resource(self.spec)


def build_resource(spec: ResourceSpec) -> dg.Definitions:
    resource = PenstockResource(home=spec.home, env=spec.env)
    return dg.Definitions(resources={RESOURCE_KEY: resource})


def declared(context: dg.ComponentLoadContext) -> ResourceSpec | None:
    """What the code location's ResourceComponent says; None without one."""
    found = context.component_tree.get_all_components(of_type=ResourceComponent)
    if len(found) > 1:
        raise declarations.DeclarationError(
            f"ResourceComponent is declared {len(found)} times; keep one document"
        )
    return found[0].spec if found else None


def settings_at_load(context: dg.ComponentLoadContext) -> Settings:
    """The settings with which definitions are built: no service is asked, nothing is written."""
    return (declared(context) or ResourceSpec()).settings(complete=False)

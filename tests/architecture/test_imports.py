"""The import contract: core <- runtime <- aws | local <- cli; infra knows core and jobs only.

It is read from the source, so imports inside functions and under TYPE_CHECKING count too.
test_blocked_imports.py tries it in a process.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from graphlib import TopologicalSorter

import pytest

from tests.architecture.imports import Import, Module, is_within, read_modules

MODULES = read_modules()


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """What a package may import beside itself and the standard library. `deferred`: inside functions only."""

    package: str
    ours: tuple[str, ...] = ()
    third: tuple[str, ...] = ()
    deferred: tuple[str, ...] = ()

    def allows(self, found: Import) -> bool:
        if not found.ours and not found.third_party:
            return True
        deferred = self.deferred if found.deferred else ()
        return found.within(self.package, *self.ours, *self.third, *deferred)


CORE, RUNTIME, AWS, LOCAL = "loomjobs.core", "loomjobs.runtime", "loomjobs.aws", "loomjobs.local"
AWS_SDKS = (
    "boto3",
    "botocore",
    "aws_lambda_powertools",
    "mypy_boto3_dynamodb",
    "mypy_boto3_s3",
    "mypy_boto3_sqs",
    "mypy_boto3_ssm",
)
CDK = ("aws_cdk", "constructs", "cdk_nag", "jsii")

LIBRARY = [
    Layer(package=CORE, third=("msgspec",), deferred=("pydantic",)),
    # The default transport is bound on first use: the one import that goes up.
    Layer(package=RUNTIME, ours=(CORE,), deferred=("loomjobs.aws.connect",)),
    Layer(package=AWS, ours=(CORE, RUNTIME), third=AWS_SDKS),
    # Likewise for payloads that go beside their messages.
    Layer(package="loomjobs.sql", ours=(CORE, RUNTIME), third=("psycopg",), deferred=("loomjobs.aws.connect",)),
    Layer(package=LOCAL, ours=(CORE, RUNTIME), third=("msgspec",)),
    Layer(package="loomjobs.testing", ours=(CORE, RUNTIME, LOCAL), third=("pytest",)),
    Layer(
        package="loomjobs.cli",
        ours=("loomjobs",),
        third=("msgspec",),
        # The project that the command is run in, by the names that every project has.
        deferred=("infra.environments", "infra.provide", "infra.resources", "jobs.queues"),
    ),
]
INFRA = [
    Layer(package="infra", ours=(CORE, "jobs"), third=CDK),
    Layer(package="infra.emulator", third=("ministack", "psutil")),
]
LAYERS = [*LIBRARY, *INFRA]


def layer_of(module: str) -> Layer | None:
    """The innermost one."""
    around = [layer for layer in LAYERS if is_within(module, layer.package)]
    return max(around, key=lambda layer: len(layer.package), default=None)


def modules_of(package: str) -> list[Module]:
    found = [module for name, module in MODULES.items() if is_within(name, package)]
    assert found, f"no module of {package} was found"
    return found


def imports_of(*packages: str) -> list[Import]:
    return [found for package in packages for module in modules_of(package) for found in module.imports]


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.package)
def test_a_layer_imports_only_what_lies_below_it(layer: Layer) -> None:
    found = [each for each in imports_of(layer.package) if layer_of(each.module) is layer]
    assert [str(each) for each in found if not layer.allows(each)] == []


def test_every_module_of_the_library_belongs_to_a_layer() -> None:
    names = [module.name for module in modules_of("loomjobs")]
    assert [name for name in names if layer_of(name) is None] == ["loomjobs"]


def test_the_root_imports_the_core_only() -> None:
    root = MODULES["loomjobs"].imports
    assert [
        str(found) for found in root if found.third_party or (found.ours and not found.within(CORE, RUNTIME, AWS))
    ] == []
    assert [str(found) for found in root if found.within(RUNTIME, AWS) and not found.typing] == []


def test_the_entry_points_import_the_aws_side_only() -> None:
    entries = imports_of("worker", "scheduler", "relay")
    assert [str(found) for found in entries if found.third_party or (found.ours and not found.within(AWS))] == []


def test_jobs_import_third_parties_inside_functions_only() -> None:
    found = [each for each in imports_of("jobs") if each.third_party]
    assert [str(each) for each in found if not each.deferred and not each.typing] == []


def test_jobs_import_the_public_api_and_each_other_only() -> None:
    found = [each for each in imports_of("jobs") if each.ours and not each.within("jobs")]
    assert [str(each) for each in found if each.target != "loomjobs"] == []


def test_environments_are_data_without_cdk() -> None:
    assert [str(found) for found in imports_of("infra.environments") if found.third_party] == []


def test_no_import_cycle() -> None:
    graph = {
        name: {
            each.target for each in module.imports if each.target in MODULES and not each.deferred and not each.typing
        }
        for name, module in MODULES.items()
    }
    TopologicalSorter(graph).prepare()  # CycleError names the modules


# -- core is pure ------------------------------------------------------------------------------------

SIDE_DOORS = (
    "os",
    "time",
    "random",
    "secrets",
    "socket",
    "subprocess",
    "threading",
    "asyncio",
    "tempfile",
    "logging",
)
CLOCKS = frozenset({"now", "utcnow", "today", "uuid1", "uuid4"})


def test_core_imports_no_clock_no_randomness_no_environment() -> None:
    assert [str(found) for found in imports_of(CORE) if found.within(*SIDE_DOORS)] == []


def test_core_asks_no_clock() -> None:
    calls = [
        f"{module.name}:{node.lineno} {ast.unparse(node.func)}"
        for module in modules_of(CORE)
        for node in ast.walk(ast.parse(module.path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CLOCKS
    ]
    assert calls == []

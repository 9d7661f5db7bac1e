"""The steps of the driver: each says what it does, does it, and looks whether it had an effect.

They are values of `reconcile.outcomes.Step`. Whether and when a step is taken is not decided here, but in
`driver.plan`. `loading` has the steps that bring the modules in and out, `serving` those around them.
"""

from driverforge_driver.driver.steps.loading import (
    BeginLoad,
    Compile,
    FillTree,
    ForgetLoad,
    InsertHelpers,
    InsertModule,
    RecordDigest,
    RemoveFirmware,
    RemoveModule,
    RestoreFirmwarePath,
    SetFirmwarePath,
    VerifyModules,
    WriteFirmware,
    WriteParameters,
)
from driverforge_driver.driver.steps.serving import (
    ClearStage,
    LabelDevices,
    MakeDevices,
    PublishRoot,
    RemoveState,
    SetStatus,
    StartDaemon,
    StopDaemons,
    UnmountRoot,
)

__all__ = [
    "BeginLoad",
    "ClearStage",
    "Compile",
    "FillTree",
    "ForgetLoad",
    "InsertHelpers",
    "InsertModule",
    "LabelDevices",
    "MakeDevices",
    "PublishRoot",
    "RecordDigest",
    "RemoveFirmware",
    "RemoveModule",
    "RemoveState",
    "RestoreFirmwarePath",
    "SetFirmwarePath",
    "SetStatus",
    "StartDaemon",
    "StopDaemons",
    "UnmountRoot",
    "VerifyModules",
    "WriteFirmware",
    "WriteParameters",
]
